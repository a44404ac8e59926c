"""What a design takes: reads of its patterns, item collections, writes, money; and what does not fit. Pure."""
