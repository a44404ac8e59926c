"""`doctor --probe`: migrator's assumptions about DynamoDB, tried on a table of its own."""
