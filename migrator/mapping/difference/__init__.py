"""Two revisions of a mapping compared by meaning."""
