"""`migrator plan`: what a design costs, holds and does not fit, before a table exists."""
