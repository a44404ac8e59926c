"""`recover`: what to do, in order, when a source, a journal or a mapping is not what it was."""
