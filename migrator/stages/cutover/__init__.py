"""Cutover: evidence, moves from phase to phase, and what still depends on SQL."""
