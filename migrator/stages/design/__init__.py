"""What a design takes, measured on the rows of its source before a table exists."""
