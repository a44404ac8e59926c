"""What a source is asked and what it holds: its statements as questions, and figures of its tables."""
