"""Writes services' items back: what services write to the table becomes rows of the source."""
