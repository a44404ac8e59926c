"""An access pattern asked of both sides: questions, pages, replays."""
