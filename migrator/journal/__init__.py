"""Our own tables: what was run, which pages are done, what was found."""
