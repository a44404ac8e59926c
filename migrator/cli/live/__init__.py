"""The commands of live change."""
