"""Requests that are sent by the HTTP session of a client of botocore, with bodies that were prepared here."""
