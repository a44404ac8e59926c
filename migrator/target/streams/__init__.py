"""DynamoDB Streams, read."""
