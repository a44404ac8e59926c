"""The SQL of access patterns, shown to the source before anybody asks a pattern."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from migrator.mapping.patterns import sample_params
from migrator.model import Mapping, Pattern
from migrator.ports import Questions


@dataclass(frozen=True)
class StatementFault:
    """What the source has against the SQL of a pattern's part ('' where an answer is one plain list)."""

    pattern: str
    part: str
    what: str

    @property
    def name(self) -> str:
        return f"{self.pattern} {self.part}".strip()


def statement_faults(source: Questions, mapping: Mapping) -> Iterator[StatementFault]:
    """One for each statement that the source refuses. Nothing is run: the source only makes its plans."""
    for pattern in mapping.patterns.values():
        params = sample_params(pattern)
        for part, sql in pattern.sql.items():
            found = (source.query_fault(sql, params, schema) for schema in _schemas(mapping, pattern))
            what = next(filter(None, found), "")
            if what:
                yield StatementFault(pattern.name, part, what)


def _schemas(mapping: Mapping, pattern: Pattern) -> tuple[str | None, ...]:
    """Those whose tables the pattern's SQL may read; (None,): the default one."""
    return (None,) if pattern.schema is None else mapping.schemas
