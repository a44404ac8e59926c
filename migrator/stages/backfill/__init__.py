"""Backfill: rows to items, page by page, written once."""
