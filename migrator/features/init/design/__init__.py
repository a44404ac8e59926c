"""Designs a mapping for questions that a database is asked: keys, indexes, access patterns. Pure."""
