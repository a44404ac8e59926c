"""The commands that move access patterns from phase to phase."""
