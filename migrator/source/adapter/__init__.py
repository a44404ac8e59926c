"""The adapter: listens to a service's SQLAlchemy engines and leaves marks of its changes."""
