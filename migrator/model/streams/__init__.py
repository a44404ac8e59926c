"""What is known of DynamoDB Streams."""
