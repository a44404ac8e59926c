"""Changes caught in the source: our two tables, the triggers that leave marks, marks and tickets."""
