"""Commands declared: names, arguments, options and helps; each imports its work when it is run."""
