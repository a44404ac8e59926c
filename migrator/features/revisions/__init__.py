"""`mapping diff` and `migrate-mapping`: a job brought from one revision of its mapping to another."""
