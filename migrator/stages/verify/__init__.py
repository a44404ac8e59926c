"""Verify: compares rows with items, re-checks differences, repairs on demand."""
