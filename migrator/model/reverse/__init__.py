"""The way back from items to rows."""
