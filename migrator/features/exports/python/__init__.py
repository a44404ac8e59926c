"""`migrator export --as python`: a typed module for a service, made of a mapping's description and of the functions here."""
