"""A source that is DynamoDB tables."""
