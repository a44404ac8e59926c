"""A mapping as TypeScript: item types, their keys and the access patterns, for ElectroDB."""
