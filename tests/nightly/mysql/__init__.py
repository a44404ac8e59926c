"""Backfill and verify by Spark: real executors, killed ones, a cluster of two workers, and what is refused."""
