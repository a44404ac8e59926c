"""Processes that share a run: the edges of one, its part of the budgets, and the path its items take."""
