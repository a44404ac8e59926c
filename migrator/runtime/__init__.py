"""What every process needs: retries, files, logs, spans, what other processes do, errors of servers."""
