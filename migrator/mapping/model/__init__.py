"""Values, results and ports that every layer may use."""
