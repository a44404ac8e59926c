"""DynamoDB and S3: clients, tables, items on the wire, and an embedded server."""
