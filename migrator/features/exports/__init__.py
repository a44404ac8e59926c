"""What `migrator export` writes: each kind is a pure function from a mapping and a job to the text of a file."""
