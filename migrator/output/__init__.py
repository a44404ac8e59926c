"""Results as text, JSON, HTML and Prometheus metrics, and a table's definition for other tools."""
