"""A proposed mapping, its plan, and how two revisions differ: on a terminal, as JSON and as pages."""
