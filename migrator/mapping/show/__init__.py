"""Masking of values and keys that must not be shown, and likely causes of differences."""
