"""Capture from MySQL's binary log."""
