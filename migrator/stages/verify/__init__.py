"""Verify: rows and items compared, differences looked at again, repaired on demand."""
