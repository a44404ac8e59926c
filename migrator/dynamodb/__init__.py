"""Everything that speaks to AWS: clients and requests of DynamoDB and S3, table settings, item writes and reads, and an
embedded DynamoDB.
"""
