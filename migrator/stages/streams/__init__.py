"""Work on what DynamoDB Streams say."""
