"""The report: what is gathered, its verdicts, and its advice."""
