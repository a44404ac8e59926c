"""`clean` and `decommission check`: deleting items, attributes and tombstones, and when SQL can go."""
