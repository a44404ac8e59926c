"""Relational databases: the only room, with the journal, that knows SQL."""
