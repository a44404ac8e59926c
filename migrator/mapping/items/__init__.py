"""A row becomes items: values, filters, expressions, keys, items_for(), and encoders."""
