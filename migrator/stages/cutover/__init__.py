"""Cutover: evidence, moves from phase to phase, and what depends on the old side."""
