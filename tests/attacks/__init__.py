"""What an attack on the whole found: one file per topic; the README has a line for each case."""
