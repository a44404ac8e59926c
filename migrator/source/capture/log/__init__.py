"""Capture from a source server's log: its changes are copied into our marks."""
