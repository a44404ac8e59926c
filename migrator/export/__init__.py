"""A table's definition in the words of other tools."""
