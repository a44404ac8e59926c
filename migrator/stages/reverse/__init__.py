"""Reverse: a service's writes to the table become rows of the source."""
