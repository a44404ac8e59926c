"""Live change of DynamoDB tables: their streams switched on, and records of these as marks."""
