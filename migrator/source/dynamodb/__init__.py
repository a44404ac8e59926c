"""Old tables of DynamoDB as a source of row trees, and their streams as marks."""
