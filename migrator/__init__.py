"""Move a live relational database into one DynamoDB table, with the service running and no row lost."""
