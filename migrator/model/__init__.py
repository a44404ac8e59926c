"""Values, results, errors and ports that every layer may use."""
