"""Tables that are read and never written: the old side, where it is DynamoDB."""
