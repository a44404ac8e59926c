"""`undo`, `forget`, `purge` and `decommission`: what is taken away again."""
