"""`recover`: the ordered steps after a source, a journal or a mapping was lost, restored or changed."""
