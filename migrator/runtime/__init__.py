"""Shared by all processes: errors, retries, files, logs, forks, repeated work."""
