"""Capture from PostgreSQL's log, on a server of the tests' own."""
