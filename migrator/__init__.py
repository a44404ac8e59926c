"""Move a live relational database into one DynamoDB table, without stopping the service and without losing a row."""
