"""A job brought from one revision of its mapping to another, step by step, beside live traffic."""
