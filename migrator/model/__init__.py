"""Values, results and ports that every room may use."""
