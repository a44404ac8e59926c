"""What every process needs: retries, files, logs, forks, repeated work, errors of servers."""
