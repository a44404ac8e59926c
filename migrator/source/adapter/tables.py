"""The tables that the adapter watches, and the resolution of a statement's names to them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from migrator.mapping.model.facts import Captured, columns_of
from migrator.runtime.errors import SettingsError
from migrator.runtime.values import replace
from migrator.source.adapter.statement import words_of
from migrator.source.engines.base import Engine
from migrator.source.engines.catalogue import Below, Links, Pairs, Place
from migrator.source.engines.connect import engine_at

# ── Tables linked by foreign keys over any number of steps; `Outcomes.links` gives single steps ──


def above(pairs: Pairs, places: Iterable[Place]) -> set[Place]:
    return beneath([(child, parent) for parent, child in pairs], places)


def beneath(pairs: Pairs, places: Iterable[Place]) -> set[Place]:
    following: dict[Place, list[Place]] = {}
    for place, other in pairs:
        following.setdefault(place, []).append(other)
    reached = set(places)
    left = list(reached)
    while left:
        new = set(following.get(left.pop(), ())) - reached
        reached |= new
        left += new
    return reached


# ── Watched tables: captured ones, and those whose foreign keys change captured ones ──

_REPLACES = re.compile(r"(?i)\bON\s+CONFLICT\s+REPLACE\b")
_KEEPS_PARTS = re.compile(r"(?i)\bON\s+CONFLICT\s+FAIL\b")


class CapturedTable(Struct, frozen=True):
    """A watched table, with real names of columns.

    `replaces`: whether a new row on SQLite may delete others without REPLACE.
    `keeps_parts`: whether SQLite keeps the work of a statement before its failure. `captured` None: its rows
    leave no marks, but foreign keys change captured tables when it changes.
    """

    place: Place
    columns: tuple[str, ...]
    key: tuple[str, ...]
    unique: tuple[tuple[str, ...], ...] = ()
    captured: Captured | None = None
    below: tuple[Below, ...] = ()
    types: Mapping[str, str] = {}
    replaces: bool = False
    keeps_parts: bool = False
    hidden: frozenset[str] = frozenset()
    """Real names of columns that `*` does not return."""
    unfilled: frozenset[str] = frozenset()
    """Real names of columns for which an INSERT without names of columns has no value."""

    @property
    def name(self) -> str:
        return (
            self.captured.name
            if self.captured is not None
            else ".".join(filter(None, (self.place.schema, self.place.name)))
        )


@dataclass
class CapturedTables:
    dialect: str
    home: str | None
    """The schema (MySQL: the database) of names without a schema."""
    tables: Mapping[Place, CapturedTable]
    views: frozenset[str] = frozenset()
    """Names, in lower case, of views, partitions and tables with rules through which the tables may be written."""
    folds_names: bool = False
    """Whether Orders and orders are the same table in the source."""
    hidden: frozenset[Place] = frozenset()
    """On PostgreSQL, the schemas and names of those."""
    ruled: Mapping[Place, frozenset[str]] = field(default_factory=dict)
    """Watched tables with rules that write watched tables, and the actions of these rules."""
    inherited: frozenset[Place] = frozenset()
    """Tables on PostgreSQL from which watched tables inherit, so that writing them changes watched rows."""
    emptied: frozenset[str] = frozenset()
    """Names, in lower case, of other tables whose TRUNCATE … CASCADE empties captured ones."""
    _by_name: dict[str, list[CapturedTable]] = field(default_factory=dict)
    _spelled: frozenset[str] = frozenset()
    _spelled_emptied: frozenset[str] = frozenset()
    _heritage: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for table in self.tables.values():
            self._by_name.setdefault(table.place.name.lower(), []).append(table)
        self._heritage = frozenset(place.name.lower() for place in self.inherited)
        self._spelled = frozenset(_spelled([*self._by_name, *self.views, *self._heritage]))
        self._spelled_emptied = frozenset(_spelled(self.emptied))

    def mentioned(self, text: str) -> bool:
        lowered = text.lower()
        if "truncate" in lowered and any(name in lowered for name in self._spelled_emptied):
            return True
        return any(name in lowered for name in self._spelled)

    def is_view(self, schema: str | None, name: str) -> bool:
        """Whether the name is of a view or a partition. `schema`: where the session resolves it."""
        return Place(schema, name) in self.hidden if self.hidden else name.lower() in self.views

    def inherits(self, table: CapturedTable | None, name: str) -> bool:
        return name.lower() in self._heritage if table is None else table.place in self.inherited

    def named(self, words: frozenset[str]) -> list[str]:
        names = [spelled for spelled in (*self._by_name, *self.views) if words_of(spelled) <= words]
        texts = [table.name for name in names for table in self._by_name.get(name, ())]
        texts += [f"view or partition {name}" for name in names if name in self.views]
        texts += [f"what inherits from {name}" for name in self._heritage if words_of(name) <= words]
        if {"truncate", "cascade"} <= words:
            lost = [name for name in sorted(self.emptied) if words_of(name) <= words]
            texts += [f"what TRUNCATE … CASCADE of {name} empties" for name in lost]
        return texts

    def resolve(self, schema: str | None, name: str, home: str | None = None) -> CapturedTable | None:
        exact = [table for table in self._by_name.get(name.lower(), ()) if self._same(table.place.name, name)]
        wanted = schema if schema is not None else (home or self.home)
        same = [table for table in exact if self._is_in(table.place.schema, wanted)]
        # A name without a schema may be resolved by a search path: an extra mark is harmless.
        return same[0] if same else (exact[0] if exact and schema is None and home is None else None)

    def _is_in(self, schema: str | None, wanted: str | None) -> bool:
        if schema is None:
            return wanted is None or wanted.lower() == "main"
        return wanted is not None and self._same(schema, wanted)

    def _same(self, real: str, written: str) -> bool:
        if self.folds_names:
            return real.lower() == written.lower()
        return real == written

    def is_shared(self, name: str) -> bool:
        """Whether several schemas have such a table: the session then determines which one is used."""
        return len(self._by_name.get(name.lower(), ())) > 1


def _spelled(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        for quoted in (name, name.replace('"', '""'), name.replace("`", "``")):
            yield from (quoted, quoted.replace("%", "%%"))


def watched_tables(connection: Connection, captured: Sequence[Captured]) -> CapturedTables:
    """Raises: SettingsError naming every captured table without a primary key."""
    engine = engine_at(connection)
    home = sa.inspect(connection).default_schema_name if engine.schema.has_schemas else None
    keyless = [table.name for table in captured if not table.table.primary_key]
    if keyless:
        what = f"dual write: {', '.join(keyless)} has no primary key, so a changed row cannot be found again"
        raise SettingsError(f"{what}; {_ADVICE}")
    by_place = {Place(table.table.schema or home, table.table.real): table for table in captured}
    links = engine.outcomes.links(connection, {place.schema for place in by_place})
    tables: dict[Place, CapturedTable] = {}
    places = _with_parents(by_place, links.acting)
    for place in places:
        below = tuple(tie for parent, tie in links.acting if parent == place and tie.child in places)
        own = by_place.get(place)
        tables[place] = _captured(engine, place, own, below) if own else _parent(connection, place, below)
    if engine.outcomes.has_conflict_rules:
        tables = _with_conflicts(connection, tables)
    hidden = _hidden(links, tables) if engine.outcomes.knows_heirs else frozenset[Place]()
    return CapturedTables(
        engine.name,
        home,
        tables,
        views=_names(hidden) if engine.outcomes.knows_heirs else _views(connection, tables),
        folds_names=engine.outcomes.folds_tables(connection),
        hidden=hidden,
        ruled=_ruled(links, tables.keys(), hidden),
        inherited=frozenset(above(links.heirs, {parent for parent, heir in links.heirs if heir in tables})),
        emptied=_emptied(links, by_place),
    )


_ADVICE = "give it one, or let triggers capture the changes (`migrator capture install`)"


def _hidden(links: Links, tables: Mapping[Place, CapturedTable]) -> frozenset[Place]:
    through = [*links.heirs, *links.views, *((written, ruled) for written, ruled, _ in links.rules)]
    return frozenset(beneath(through, tables) - tables.keys())


def _ruled(links: Links, watched: Set[Place], hidden: Set[Place]) -> Mapping[Place, frozenset[str]]:
    ruled: dict[Place, frozenset[str]] = {}
    for written, place, action in links.rules:
        if place in watched and written in watched | hidden:
            ruled[place] = ruled.get(place, frozenset()) | {action}
    return ruled


def _emptied(links: Links, captured: Iterable[Place]) -> frozenset[str]:
    parts = beneath(links.heirs, captured)
    return _names(above(links.emptied, parts) - parts)


def _names(places: Iterable[Place]) -> frozenset[str]:
    return frozenset(place.name.lower() for place in places)


def _with_conflicts(
    connection: Connection, tables: Mapping[Place, CapturedTable]
) -> dict[Place, CapturedTable]:
    query = "SELECT lower(name), sql FROM sqlite_master WHERE type = 'table'"
    texts = {name: text or "" for name, text in connection.exec_driver_sql(query)}
    updated = {}
    for place, table in tables.items():
        text = texts.get(place.name.lower(), "")
        updated[place] = replace(
            table, replaces=bool(_REPLACES.search(text)), keeps_parts=bool(_KEEPS_PARTS.search(text))
        )
    return updated


def _views(connection: Connection, tables: Iterable[Place]) -> frozenset[str]:
    inspector, names = sa.inspect(connection), {place.name.lower() for place in tables}
    texts: dict[str, frozenset[str]] = {}
    for schema in {place.schema for place in tables}:
        for name in inspector.get_view_names(schema):
            definition = inspector.get_view_definition(name, schema)
            texts[name.lower()] = words_of(str(definition or ""))
    views_found: set[str] = set()
    while new := {
        view
        for view, words in texts.items()
        if view not in views_found
        and any(words_of(table_name) <= words for table_name in names | views_found)
    }:
        views_found |= new
    return frozenset(views_found)


def _captured(engine: Engine, place: Place, captured: Captured, below: tuple[Below, ...]) -> CapturedTable:
    table = captured.table
    columns = [column for column in table.columns if column.sql is None]
    real = {column.name: column.real for column in columns}
    hidden = frozenset(column.real for column in columns if column.hidden)
    skips = engine.statements.skips_generated
    computed = {column.real for column in columns if skips and column.generated}
    return CapturedTable(
        place,
        tuple(real.values()),
        tuple(column.real for column in columns_of(captured, table.primary_key)),
        tuple(tuple(real[name] for name in key) for key in table.unique),
        captured,
        below,
        {column.real: column.declared for column in columns},
        hidden=hidden,
        unfilled=hidden | computed,
    )


def _parent(connection: Connection, place: Place, below: tuple[Below, ...]) -> CapturedTable:
    inspector, engine = sa.inspect(connection), engine_at(connection)
    columns = inspector.get_columns(place.name, place.schema)
    key = tuple(inspector.get_pk_constraint(place.name, place.schema)["constrained_columns"])
    types = {
        column["name"]: ""
        if isinstance(column["type"], sa.types.NullType)
        else column["type"].compile(inspector.dialect)
        for column in columns
    }
    if not key:
        what = (
            f"dual write: {place.name} has no primary key, and its foreign keys change tables of the mapping"
        )
        raise SettingsError(f"{what}; {_ADVICE}")
    hidden = frozenset(engine.outcomes.hidden(connection, place.schema, place.name))
    skips = engine.statements.skips_generated
    computed = frozenset(column["name"] for column in columns if skips and column.get("computed"))
    unfilled = hidden | computed
    return CapturedTable(place, tuple(types), key, (), None, below, types, hidden=hidden, unfilled=unfilled)


def _with_parents(captured: Mapping[Place, Captured], acting: Sequence[tuple[Place, Below]]) -> list[Place]:
    places = list(captured)
    for place in places:
        places += [parent for parent, tie in acting if tie.child == place and parent not in places]
    return places
