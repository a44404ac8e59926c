"""MariaDB and MySQL fire no triggers for rows that a foreign key changes: triggers of the parent leave their marks.

A parent that goes, or whose key changes, leaves a mark for each captured row below it that a foreign key reaches, before
the change and, of a key, after it too. Some of these rows may stay as they are; a mark more does no harm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.mapping.changes import Captured
from migrator.source.capture.design import Trigger, columns_of, digest_of
from migrator.source.capture.mysql import MysqlDdl, image, literal, quoted, trigger_name

_ACTS = frozenset({"CASCADE", "SET NULL", "SET DEFAULT"})
_FOREIGN_KEYS = sa.text("""
    SELECT r.CONSTRAINT_NAME AS name, k.TABLE_SCHEMA AS child_schema, k.TABLE_NAME AS child,
        k.REFERENCED_TABLE_SCHEMA AS parent_schema, k.REFERENCED_TABLE_NAME AS parent,
        k.COLUMN_NAME AS own, k.REFERENCED_COLUMN_NAME AS theirs, r.DELETE_RULE AS on_delete, r.UPDATE_RULE AS on_update
    FROM information_schema.REFERENTIAL_CONSTRAINTS r
    JOIN information_schema.KEY_COLUMN_USAGE k ON k.CONSTRAINT_SCHEMA = r.CONSTRAINT_SCHEMA
        AND k.CONSTRAINT_NAME = r.CONSTRAINT_NAME AND k.TABLE_NAME = r.TABLE_NAME
    WHERE k.REFERENCED_TABLE_NAME IS NOT NULL
    ORDER BY k.TABLE_SCHEMA, k.TABLE_NAME, r.CONSTRAINT_NAME, k.ORDINAL_POSITION
""")
Name = tuple[str, str]
"""(database, table)."""


@dataclass(frozen=True)
class Cascade:
    """A foreign key that changes rows of `child` by itself. `columns`: (child's, parent's)."""

    child: Name
    parent: Name
    columns: tuple[tuple[str, str], ...]
    on_delete: bool
    on_update: bool


Chain = tuple[Cascade, ...]
"""From a captured table up: each one's parent is the next one's child."""


def cascades(connection: Connection) -> list[Cascade]:
    """All that the user can see, of every database."""
    keys: dict[tuple[str, str, str], list[sa.Row[tuple[str, ...]]]] = {}
    for row in connection.execute(_FOREIGN_KEYS):
        if row.on_delete in _ACTS or row.on_update in _ACTS:
            keys.setdefault((row.child_schema, row.child, row.name), []).append(row)
    return [
        Cascade(
            child=(rows[0].child_schema, rows[0].child),
            parent=(rows[0].parent_schema, rows[0].parent),
            columns=tuple((row.own, row.theirs) for row in rows),
            on_delete=rows[0].on_delete in _ACTS,
            on_update=rows[0].on_update in _ACTS,
        )
        for rows in keys.values()
    ]


def circles(known: Sequence[Cascade], tables: Sequence[Captured], home: str) -> list[str]:
    """Captured tables that a foreign key reaches in a circle: how deep it goes nobody knows before."""
    return [
        one.name for one in tables if any(_is_circle(chain) for chain in _chains(known, _name(one, home)))
    ]


def covers(known: Sequence[Cascade], tables: Sequence[Captured], ddl: MysqlDdl) -> list[Trigger]:
    """Triggers of parents, each with all that the table's changes reach."""
    below: dict[Name, list[tuple[Captured, Chain]]] = {}
    for one in tables:
        for chain in _chains(known, _name(one, ddl.home)):
            if not _is_circle(chain):
                below.setdefault(chain[-1].parent, []).append((one, chain))
    return [trigger for parent, found in sorted(below.items()) for trigger in _triggers(parent, found, ddl)]


def _name(captured: Captured, home: str) -> Name:
    return captured.table.schema or home, captured.table.real


def _chains(known: Sequence[Cascade], table: Name, above: Chain = ()) -> Iterator[Chain]:
    """Every way up from the table; one that comes to a table for the second time goes no further."""
    for key in known:
        if key.child == table:
            chain = (*above, key)
            yield chain
            if not _is_circle(chain):
                yield from _chains(known, key.parent, chain)


def _is_circle(chain: Chain) -> bool:
    return chain[-1].parent in {key.child for key in chain}


# ── triggers ──

_KINDS: Mapping[str, tuple[str, str, str]] = {
    "gone": ("BEFORE DELETE", "OLD", "image_before"),
    "from": ("BEFORE UPDATE", "OLD", "image_before"),
    "to": ("AFTER UPDATE", "NEW", "image_after"),
}


def _triggers(parent: Name, found: Sequence[tuple[Captured, Chain]], ddl: MysqlDdl) -> Iterator[Trigger]:
    table = parent[1] if parent[0] == ddl.home else ".".join(parent)
    for kind, (event, side, column) in _KINDS.items():
        reached = [
            (captured, chain)
            for captured, chain in found
            if (chain[-1].on_delete if kind == "gone" else chain[-1].on_update)
        ]
        if not reached:
            continue
        selects = "\nUNION ALL\n".join(
            _select(captured, chain, side, ddl, if_changed=kind != "gone") for captured, chain in reached
        )
        body = _row_by_row(selects, f"INSERT INTO {ddl.mark} (table_name, {column}, changed_at)")
        digest = digest_of(body)
        name = trigger_name(table, kind, digest, whole=True)
        where = f"{quoted(parent[0])}.{quoted(name)}"
        on = f"{quoted(parent[0])}.{quoted(parent[1])}"
        create = f"CREATE TRIGGER {where} {event} ON {on} FOR EACH ROW\n{body}"
        yield Trigger(table, name, digest, (create,), (f"DROP TRIGGER {where}",))


def _row_by_row(selects: str, insert: str) -> str:
    """An INSERT … VALUES for each row: as _body of MysqlDdl says, one with SELECT would hold up all other writers."""
    return f"""\
BEGIN
DECLARE migrator_done INT DEFAULT 0;
DECLARE migrator_table VARCHAR(255) CHARACTER SET utf8mb4;
DECLARE migrator_image LONGTEXT CHARACTER SET utf8mb4;
DECLARE migrator_at DOUBLE;
DECLARE migrator_rows CURSOR FOR
{selects};
DECLARE CONTINUE HANDLER FOR NOT FOUND SET migrator_done = 1;
OPEN migrator_rows;
migrator_each: LOOP
    FETCH migrator_rows INTO migrator_table, migrator_image, migrator_at;
    IF migrator_done THEN LEAVE migrator_each; END IF;
    {insert}
    VALUES (migrator_table, migrator_image, migrator_at);
END LOOP;
CLOSE migrator_rows;
END"""


def _select(captured: Captured, chain: Chain, side: str, ddl: MysqlDdl, *, if_changed: bool) -> str:
    """The captured rows (r0) that the changed row reaches through the tables between (r1, r2, …)."""
    columns = columns_of(captured, captured.columns)
    tables = [f"{quoted(key.child[0])}.{quoted(key.child[1])} AS r{n}" for n, key in enumerate(chain)]
    links = [
        f"r{n}.{quoted(own)} = {side if n == len(chain) - 1 else f'r{n + 1}'}.{quoted(theirs)}"
        for n, key in enumerate(chain)
        for own, theirs in key.columns
    ]
    if if_changed:
        moved = (
            f"NOT (CAST(OLD.{quoted(theirs)} AS BINARY) <=> CAST(NEW.{quoted(theirs)} AS BINARY))"
            for _, theirs in chain[-1].columns
        )
        links.append(f"({' OR '.join(moved)})")
    values = f"{literal(captured.name)}, {image(columns, 'r0')}, {ddl.now}"
    return f"SELECT {values}\nFROM {', '.join(tables)}\nWHERE {' AND '.join(links)}"
