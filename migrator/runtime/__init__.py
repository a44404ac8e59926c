"""What every process needs: errors, retries, files, logs, forks, repeated work."""
