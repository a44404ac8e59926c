"""Change capture in the source: triggers that leave marks, marks, and tickets."""
