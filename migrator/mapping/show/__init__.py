"""What of a row or an item may be shown, and how a difference is explained."""
