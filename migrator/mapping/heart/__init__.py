"""A row becomes items: values, filters, expressions, keys, and items_for()."""
