"""Old DynamoDB tables as a source of row trees, and their streams as marks."""
