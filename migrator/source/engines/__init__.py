"""Database engines as objects: all that one engine does differently from the others."""
