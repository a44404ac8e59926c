"""Capacity of a design: reads of its patterns, item collections, writes, money; and exceeded limits. Pure."""
