"""Items as files: `export items` writes them, `table import` lets DynamoDB make a table of them."""
