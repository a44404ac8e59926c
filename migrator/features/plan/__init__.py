"""`migrator plan`: the costs, sizes and exceeded limits of a design, before a table exists."""
