"""Capture in a source, without one."""
