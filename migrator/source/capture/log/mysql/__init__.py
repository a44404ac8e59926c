"""Capture from the binary log of MySQL."""
