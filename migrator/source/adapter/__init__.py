"""Changes caught in a service: an adapter that listens to SQLAlchemy and leaves marks."""
