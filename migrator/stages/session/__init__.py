"""`JobSession`: each edge (source, table, journal, capture) of a job, opened at first use."""
