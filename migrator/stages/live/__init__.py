"""Live change: marks of changed rows are taken, rows read again, items written in order."""
