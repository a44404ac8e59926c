"""`doctor --probe`: what migrator relies on of DynamoDB, tried on a table of its own."""
