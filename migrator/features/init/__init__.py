"""`migrator init`: a mapping proposed from a live database, old tables or statements; and the shipped examples."""
