"""SQL that users write: read, checked, and named."""
