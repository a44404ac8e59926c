"""Old tables of DynamoDB's as a source of row trees."""
