"""Cutover: evidence, moves from phase to phase, and remaining dependence on SQL."""
