"""Reads of a service: which side answers, and the comparison in the shadow."""
