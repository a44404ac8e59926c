"""`clean` and `decommission check`: what is deleted again, and when SQL can go."""
