"""Who is at work on a job: the run lease, processes on record, and their shares of a run's budgets."""
