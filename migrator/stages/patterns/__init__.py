"""Running an access pattern against both sides: questions, pages, replays."""
