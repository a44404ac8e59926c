"""The mapping language: a YAML document, its forms, and the parser that makes a mapping of it."""
