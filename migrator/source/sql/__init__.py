"""SQL that users write in a mapping: parsed, checked, and its names resolved."""
