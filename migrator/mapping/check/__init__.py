"""Checks of a mapping: faults and warnings, in its own form and against the source's schema."""
