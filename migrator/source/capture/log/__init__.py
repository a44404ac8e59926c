"""Capture from the log of a source's server, whose changes are copied into our marks."""
