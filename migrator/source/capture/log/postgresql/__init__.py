"""Capture from PostgreSQL's log: a publication and a replication slot."""
