"""Capacity of a design, measured on the rows of its source before a table exists."""
