"""Commands that show one item collection beside its rows: on a terminal, and as pages."""
