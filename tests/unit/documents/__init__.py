"""Old tables of DynamoDB."""
