"""Rows restored from their items."""
