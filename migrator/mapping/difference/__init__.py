"""Two revisions of a mapping compared by what they mean."""
