"""What items say of the rows that they were made of."""
