"""`migrator report`: the state of a migration on a page, on a terminal and as JSON."""
