"""DynamoDB and S3: clients, how requests are sent, tables, items written and read, and an embedded server."""
