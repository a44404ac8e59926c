"""Jobs on dynoxide, the second embedded DynamoDB."""
