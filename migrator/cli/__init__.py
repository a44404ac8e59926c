"""What commands are made with: options, text, tables, pages, progress, the endpoint for metrics."""
