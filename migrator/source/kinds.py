"""What a column holds, by the type that the source declares for it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from migrator.facts import Kind
from migrator.source import types_mysql, types_postgresql, types_sqlite
from migrator.source.type_rules import TypeRule

RULES = {
    "sqlite": types_sqlite.RULES,
    "postgresql": types_postgresql.RULES,
    "mysql": types_mysql.RULES,
}


def _by_name(rules: Iterable[TypeRule]) -> dict[str, Kind]:
    return {name: replace(rule.kind, no_key=rule.no_key) for rule in rules for name in rule.names}


KINDS = {dialect: _by_name(rules) for dialect, rules in RULES.items()}
"""Per dialect, the kind that each type name means."""

_UNKNOWN = {
    "postgresql": Kind("unknown", instead="CAST({column} AS text)"),
    "mysql": Kind("unknown", instead="CAST({column} AS char)"),
}
_ARGUMENTS = re.compile(r"\(\s*(\d+)\s*(?:,\s*(-?\d+)\s*)?\)")
# As MySQL writes them: int(10) unsigned zerofill, enum('a','b(1)'), text /*M!100301 COMPRESSED*/.
_SIGNS = re.compile(r"(?: unsigned| zerofill)+$")
_MEMBERS = re.compile(r"^(enum|set)\(.*\)$", re.DOTALL)
_COMMENT = re.compile(r" ?/\*.*?\*/$")
# PostgreSQL's INTERVAL DAY TO SECOND(3) holds what an INTERVAL holds.
_SPAN = re.compile(r"^interval\b.*$", re.IGNORECASE)


def kind_of(declared: str, dialect: str) -> Kind:
    """The kind of a declared type such as `NUMERIC(10, 2)`; `unknown` where it has no form in an item."""
    kinds = KINDS[dialect]
    bare = _SPAN.sub("INTERVAL", _MEMBERS.sub(r"\1", _SIGNS.sub("", _COMMENT.sub("", declared))))
    arguments = _ARGUMENTS.search(bare)
    type_name = " ".join(_ARGUMENTS.sub(" ", bare, count=1).upper().split())
    # tinyint(1), but not tinyint(1) unsigned, is a boolean.
    kind = kinds.get(declared.upper()) or kinds.get(type_name) or _unlisted(type_name, dialect)
    first, second = _numbers(arguments)
    if kind.name == "number":
        return replace(kind, precision=first, scale=second)
    if kind.name in ("text", "bits"):
        return replace(kind, length=first)
    return kind


def _numbers(arguments: re.Match[str] | None) -> tuple[int | None, ...]:
    """The (first, second) argument of a type, None where there is none."""
    found = arguments.groups() if arguments else (None, None)
    return tuple(None if text is None else int(text) for text in found)


def _unlisted(type_name: str, dialect: str) -> Kind:
    if dialect != "sqlite":
        return _UNKNOWN[dialect]
    return next(kind for words, kind in types_sqlite.AFFINITIES if any(word in type_name for word in words))
