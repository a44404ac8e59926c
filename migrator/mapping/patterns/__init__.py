"""Access patterns: requests to DynamoDB, parameters, answers, and the comparison of two answers."""
