"""Building blocks of commands: options, text, tables, pages, progress, the endpoint for metrics."""
