"""Queries and statistics of a source: its statements as questions, and figures of its tables."""
