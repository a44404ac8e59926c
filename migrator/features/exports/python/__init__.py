"""`migrator export --as python`: a typed module for a service, made from a mapping's description and the functions here."""
