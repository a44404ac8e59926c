"""Relational databases: connect, reflect, select, read. With journal/ the only package that knows SQL."""
