"""Commands that design: from a live database to a mapping of it."""
