"""Findings, progress and results for people and programs."""
