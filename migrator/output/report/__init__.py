"""The report of a migration: its HTML page, its drawings, and its short form on a terminal."""
