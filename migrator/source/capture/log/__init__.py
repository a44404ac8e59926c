"""Capture from PostgreSQL's log: a publication and a replication slot, whose changes are copied into our marks."""
