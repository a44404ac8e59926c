"""Knows AWS: clients, tables, items on the wire, and an embedded server."""
