"""Commands that move items by files: an export of all of them, and the import of a table."""
