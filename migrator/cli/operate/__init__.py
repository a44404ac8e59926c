"""Commands of operation: what a job's processes do, and how fast they may go."""
