"""Spark as a way to start processes: tasks claim pages of a run, and the journal records progress."""
