"""Exported items as files: their manifest, the places where they are, and imports of them."""
