"""A job file and its settings: read, checked as a whole, then frozen."""
