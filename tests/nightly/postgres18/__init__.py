"""What PostgreSQL 18 alone has."""
