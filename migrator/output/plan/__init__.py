"""What a design takes, on a terminal, as JSON and as one HTML page."""
