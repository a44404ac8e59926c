"""Database engines as objects: everything that differs between them."""
