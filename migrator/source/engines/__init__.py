"""What differs from one relational database to the next, one object an engine; `table` finds it by SQLAlchemy's name."""
