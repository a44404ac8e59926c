"""Designs a mapping for the questions that a database answers: keys, indexes, access patterns. Pure."""
