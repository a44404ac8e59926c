"""The table itself: made, compared with its mapping, and the rights that each role needs on it."""
