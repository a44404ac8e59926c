"""`look` and `ui`: one item collection shown with its rows, on a terminal and as pages."""
