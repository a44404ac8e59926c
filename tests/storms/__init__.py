"""A shop that is written to while it is moved, and everything that can go wrong meanwhile."""
