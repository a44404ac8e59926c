"""Optional features: one folder each, with its commands, its work and its words. None imports another."""
