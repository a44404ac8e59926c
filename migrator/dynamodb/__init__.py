"""DynamoDB and S3: clients, requests, table settings, item writes and reads, and an embedded server."""
