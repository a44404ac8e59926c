"""Opens the edges (source, table, journal) of a job and hands them to stages."""
