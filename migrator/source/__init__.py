"""SQL: the only room, with the journal, that knows any."""

from migrator.source.facts import reflect
from migrator.source.reader import SqlSource
from migrator.source.url import SUPPORTED, source_url

__all__ = ["SUPPORTED", "SqlSource", "reflect", "source_url"]
