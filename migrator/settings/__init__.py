"""A job file and its settings: read, validated as a whole, then frozen."""
