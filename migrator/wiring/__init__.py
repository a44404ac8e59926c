"""Builds the edges (source, table, journal) from a job and hands them to stages; decides nothing."""
