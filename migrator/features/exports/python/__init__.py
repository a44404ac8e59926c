"""`migrator export --as python`: a typed module for a service, from a mapping's description and these functions."""
