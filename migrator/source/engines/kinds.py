"""Kinds of columns: the rules by which each engine's types become one of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from migrator.model.facts import Kind

# ──
# What a rule for column types says: one row of the tables that the code and docs/types.md are made from.


@dataclass(frozen=True)
class TypeRule:
    """`names`: types in the database's words, upper case. `form`: DynamoDB's type, and the format in words.

    `rule`: what happens to a value, in whole sentences. `example`: (an SQL literal, the item's value as JSON would
    write it), both '' for a type that is refused. `no_key`: why a column of it cannot name rows, '' where it can.
    """

    names: tuple[str, ...]
    kind: Kind
    form: str
    rule: str
    example: tuple[str, str] = ("", "")
    no_key: str = ""


NO_ORDER = "PostgreSQL has no order for its values"
DOCUMENT = "MySQL compares a document with a text as two different things"
NESTED = "a key takes one value"

REFUSED = "none"
"""The form of a type that `check` refuses."""

OVER_38 = "NaN, infinity and more than 38 digits refuse their row, unless the mapping says `|text`."
FLOATS = (
    "NaN, infinity and what is outside of DynamoDB's range refuse their row, unless the mapping says `|text`."
)
MOMENTS = "Infinity, BC and years after 9999 refuse their row, unless the mapping says `|text`."


# ── What a column holds, by the type that the source declares for it ──

_ARGUMENTS = re.compile(r"\(\s*(\d+)\s*(?:,\s*(-?\d+)\s*)?\)")
# As MySQL writes them: int(10) unsigned zerofill, enum('a','b(1)'), text /*M!100301 COMPRESSED*/.
_SIGNS = re.compile(r"(?: unsigned| zerofill)+$")
_MEMBERS = re.compile(r"^(enum|set)\(.*\)$", re.DOTALL)
_COMMENT = re.compile(r" ?/\*.*?\*/$")
# PostgreSQL's INTERVAL DAY TO SECOND(3) holds what an INTERVAL holds.
_SPAN = re.compile(r"^interval\b.*$", re.IGNORECASE)


@dataclass(frozen=True)
class Kinds:
    """Kinds by types of one engine. `named`: by the type's name; `unlisted`: of a name, upper case, that no rule has."""

    named: Mapping[str, Kind]
    unlisted: Callable[[str], Kind]

    @classmethod
    def of(cls, rules: Sequence[TypeRule], unlisted: Callable[[str], Kind]) -> Kinds:
        named = {name: replace(rule.kind, no_key=rule.no_key) for rule in rules for name in rule.names}
        return cls(named, unlisted)

    def kind_of(self, declared: str) -> Kind:
        """The kind of a declared type such as `NUMERIC(10, 2)`; `unknown` where it has no form in an item."""
        bare = _SPAN.sub("INTERVAL", _MEMBERS.sub(r"\1", _SIGNS.sub("", _COMMENT.sub("", declared))))
        arguments = _ARGUMENTS.search(bare)
        type_name = " ".join(_ARGUMENTS.sub(" ", bare, count=1).upper().split())
        # tinyint(1), but not tinyint(1) unsigned, is a boolean.
        kind = self.named.get(declared.upper()) or self.named.get(type_name) or self.unlisted(type_name)
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
