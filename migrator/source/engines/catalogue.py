"""Catalogue of a schema: tables and columns by real names, kinds of columns, keys, links; and an engine's data files."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import TypeVar

import sqlalchemy as sa
from msgspec import Struct, convert
from sqlalchemy.engine import Connection, Inspector
from sqlalchemy.engine.interfaces import ReflectedForeignKeyConstraint

from migrator.mapping.model.facts import Alike, Column, Kind, UniqueConflict
from migrator.runtime.values import replace


def quoted(name: str, quote: str = '"') -> str:
    return quote + name.replace(quote, quote * 2) + quote


def qualified(schema: str | None, name: str, quote: str = '"') -> str:
    """The quoted name; with the schema, if there is one."""
    return quoted(name, quote) if schema is None else f"{quoted(schema, quote)}.{quoted(name, quote)}"


# ── A rule for column types: one row of an engine's types.toml (tools/pages/column_types.py) ──


class TypeRule(Struct, frozen=True):
    """A rule for column types.

    `names`: as the database spells them, upper case.
    `form`: DynamoDB's type, and the format in words.
    `rule`: the conversion, in whole sentences.
    `example`: (an SQL literal, the item's value as JSON), both '' for a refused type.
    `no_key`: why a column of it cannot identify rows, '' if it can.
    """

    names: tuple[str, ...]
    kind: Kind
    form: str
    rule: str
    example: tuple[str, str] = ("", "")
    no_key: str = ""


# ── Kinds of columns by their declared types ──

_ARGUMENTS = re.compile(r"\(\s*(\d+)\s*(?:,\s*(-?\d+)\s*)?\)")
# As MySQL writes them: int(10) unsigned zerofill, enum('a','b(1)'), text /*M!100301 COMPRESSED*/.
_SIGNS = re.compile(r"(?: unsigned| zerofill)+$")
_MEMBERS = re.compile(r"^(enum|set)\(.*\)$", re.DOTALL)
_COMMENT = re.compile(r" ?/\*.*?\*/$")
# PostgreSQL's INTERVAL DAY TO SECOND(3) has the same values as an INTERVAL.
_SPAN = re.compile(r"^interval\b.*$", re.IGNORECASE)


class Kinds(Struct, frozen=True, dict=True):
    """`engine`: its package, with a rule for each type in types.toml.
    `unlisted`: the kind for a name, upper case, without a rule.
    """

    engine: str
    unlisted: Callable[[str], Kind]

    @cached_property
    def named(self) -> Mapping[str, Kind]:
        return {name: replace(rule.kind, no_key=rule.no_key) for rule in self.rules for name in rule.names}

    @property
    def rules(self) -> Sequence[TypeRule]:
        return self._written[0]

    @property
    def shapes(self) -> Sequence[TypeRule]:
        return self._written[1]

    @cached_property
    def _written(self) -> tuple[Sequence[TypeRule], Sequence[TypeRule]]:
        written = tomllib.loads((files(self.engine) / "types.toml").read_text(encoding="utf-8"))
        rules, shapes = (convert(written[name], tuple[TypeRule, ...]) for name in ("rules", "shapes"))
        return rules, shapes

    @lru_cache(maxsize=1_000)  # noqa: B019 (one of each engine, which stays)
    def kind_of(self, declared: str) -> Kind:
        """The kind of a declared type such as `NUMERIC(10, 2)`; `unknown` if it has no form in an item."""
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
        if kind.name == "timestamp" and kind.precision is not None:
            return replace(kind, precision=kind.precision if first is None else first)
        return kind


def _numbers(arguments: re.Match[str] | None) -> tuple[int | None, ...]:
    texts = arguments.groups() if arguments else (None, None)
    return tuple(None if text is None else int(text) for text in texts)


# ── Queries of an engine, from its queries.sql ──

_NAMED = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENTS = re.compile(r"^--.*\n", re.MULTILINE)
_PART = re.compile(r"\{(\w+)\}")


class Queries(Struct, frozen=True, dict=True):
    """Queries by name. `engine`: its package; in its `file` each query follows a line `-- name: …`.

    {name} in a query is a value, or the text of another query; other comment lines are not sent.
    """

    engine: str
    file: str = "queries.sql"

    def __getitem__(self, name: str) -> sa.TextClause:
        return sa.text(self.text(name))

    def text(self, name: str, /, **values: object) -> str:
        def part(found: re.Match[str]) -> str:
            return str(values[found[1]]) if found[1] in values else self.text(found[1])

        return _PART.sub(part, self._written[name])

    def names(self) -> Set[str]:
        return self._written.keys()

    @cached_property
    def _written(self) -> Mapping[str, str]:
        text = (files(self.engine) / self.file).read_text(encoding="utf-8")
        _, *pieces = _NAMED.split(text)
        return {
            name: _COMMENTS.sub("", query).strip()
            for name, query in zip(pieces[::2], pieces[1::2], strict=True)
        }


# ── Functions of an engine's SQL, from its functions.toml ──


class FunctionNames(Struct, frozen=True):
    """Functions with restricted use in a mapping's SQL.

    `refused`: patterns of functions that reach beyond the tables, except `harmless` ones.
    `refused_columns`: of those, what x.name calls.
    `sized`: functions that make a value of any size, and their size argument; empty if connections limit
    values.
    `volatile`: functions whose value changes over time.
    """

    refused: tuple[str, ...]
    volatile: frozenset[str]
    refused_columns: tuple[str, ...] = ()
    harmless: frozenset[str] = frozenset()
    sized: Mapping[str, int] = {}


class Functions(Struct, frozen=True, dict=True):
    engine: str

    @cached_property
    def names(self) -> FunctionNames:
        text = (files(self.engine) / "functions.toml").read_text(encoding="utf-8")
        return convert(tomllib.loads(text), FunctionNames)


# ── The tables of one schema by the database's catalogue, by their real names ──

_NOT_THE_USERS = ("sqlite_", "migrator_")


class Reflected(Struct, frozen=True):
    schema: str | None
    columns: dict[str, list[Column]]
    primary_keys: dict[str, list[str]]
    unique: dict[str, list[tuple[str, ...]]]
    foreign_keys: dict[str, list[ReflectedForeignKeyConstraint]]
    unique_conflicts: dict[str, tuple[UniqueConflict, ...]] = {}
    doubts: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    """Per table, keys from above that may not be unique over all of its rows, and why."""
    left_out: dict[str, str] = {}
    """Tables that are not the application's, or that cannot be read, and why."""


UNREADABLE = "a table that this user may not read; GRANT SELECT on it"


def the_users(names: Iterable[str]) -> Iterator[str]:
    return (name for name in sorted(names) if not name.lower().startswith(_NOT_THE_USERS))


def primary_keys_of(inspector: Inspector, schema: str | None) -> dict[str, list[str]]:
    constraints = inspector.get_multi_pk_constraint(schema=schema)
    return {name: list(key["constrained_columns"]) for (_, name), key in constraints.items() if key}


def foreign_keys_of(
    inspector: Inspector, schema: str | None
) -> dict[str, list[ReflectedForeignKeyConstraint]]:
    return {name: list(keys) for (_, name), keys in inspector.get_multi_foreign_keys(schema=schema).items()}


# ── Texts that the source treats as equal (by case, trailing spaces) ──

_ALIKE: tuple[Alike, ...] = ("case", "trailing spaces")
Name = TypeVar("Name")


def alike(answers: Iterable[object]) -> tuple[Alike, ...]:
    """Ignored differences, from the answers to whether 'a' equals 'A', and 'a '."""
    return tuple(name for name, is_one in zip(_ALIKE, answers, strict=True) if is_one)


def alike_by(connection: Connection, queries: Mapping[Name, str]) -> Mapping[Name, tuple[Alike, ...]]:
    return {name: alike(connection.exec_driver_sql(query).one()) for name, query in queries.items()}


# ── Links between tables: foreign keys with actions, partitions, inheriting tables ──

ACTS = frozenset({"CASCADE", "SET NULL", "SET DEFAULT"})
"""Actions of foreign keys that change rows."""


class Place(Struct, frozen=True):
    schema: str | None
    name: str


class Below(Struct, frozen=True):
    """A foreign key by which the database changes rows of `child`. `columns`: (child's, own) real names."""

    child: Place
    columns: tuple[tuple[str, str], ...]
    on_delete: bool
    on_update: bool


Pairs = Sequence[tuple[Place, Place]]
"""(parent, child)."""


class Links(Struct, frozen=True):
    """`acting`: (parent, foreign key) for each foreign key with an action.
    `heirs`: partitions and inheriting tables.
    `views`: with the tables they read.
    `emptied`: tables that TRUNCATE … CASCADE of the first also empties.
    `rules`: (table that a rule writes, table with the rule, the action for which it does).
    """

    acting: Sequence[tuple[Place, Below]]
    heirs: Pairs = ()
    views: Pairs = ()
    emptied: Pairs = ()
    rules: Sequence[tuple[Place, Place, str]] = ()


class Recorded(Struct, frozen=True):
    """`select`: SQL for (statement, calls) of this database.
    `hidden`: text in place of a statement that this user may not read, '' if the server has none.
    `advice`: how to enable recording.
    `grant`: the right to read it.
    """

    select: str
    hidden: str
    advice: str
    grant: str
