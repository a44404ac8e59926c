"""`JobSession`: each edge (source, table, journal, capture) of a job, opened when first asked for."""
