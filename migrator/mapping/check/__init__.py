"""What is wrong with a mapping, or unwise in it: checked against its own words and the source's schema."""
