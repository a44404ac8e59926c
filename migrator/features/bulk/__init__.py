"""Items as files: `table export` writes them, `table import` lets DynamoDB make a table of them."""
