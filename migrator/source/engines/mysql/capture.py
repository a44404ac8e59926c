"""Capture on MariaDB and MySQL: our triggers in the catalogue, tables that cannot be captured, decoding of images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from migrator.mapping.model.facts import Captured, Column, columns_of, digest_of
from migrator.source.engines.base import VIEW_ADVICE, Capturing, Decode, Refusal
from migrator.source.engines.catalogue import ACTS, Queries, qualified
from migrator.source.engines.ddl import (
    EVENTS,
    IMAGES,
    REFUSES,
    VERSION,
    Ddl,
    ExistingTrigger,
    Trigger,
    columns_note,
    refusal,
    trigger_name,
)
from migrator.source.engines.mysql.facts import QUERIES, UCS2, literal, of_ucs2, quoted
from migrator.source.engines.mysql.server import rights_of_user
from migrator.source.engines.shared import OUR_TRIGGER

# ── Capture on MariaDB and MySQL: two tables with the prefix `migrator_`, three triggers a table ──

_SQL = Queries("migrator.source.engines.mysql", "capture.sql")
_FORM = "ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"

_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "year")
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_TEXT = ("TEXT", "CONVERT({} USING utf8mb4)")
# MySQL converts a text with half a surrogate pair to NULL; of its character sets, this one may hold it.
_UCS2 = ("UCS2", "HEX({})")
_FORMS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(_INTEGERS, ("LONGLONG", "{}")),
    "bit": ("LONGLONG", "{} + 0"),
    "decimal": ("NEWDECIMAL", "{}"),
    # FLOAT shows only six digits of its value.
    "float": ("DOUBLE", "{} + 0e0"),
    "double": ("DOUBLE", "{}"),
    "date": ("DATE", "{}"),
    "time": ("TIME", "{}"),
    "datetime": ("DATETIME", "{}"),
    # Its text would be in the session's zone, in which an hour occurs twice when the clock is set back.
    "timestamp": ("EPOCH", "UNIX_TIMESTAMP({})"),
    **dict.fromkeys(_BYTES, ("HEX", "HEX({})")),
}
"""By declared type: the word before the colon, which selects the decoder of the text, and the SQL for the text."""


def image(columns: Sequence[Column], side: str) -> str:
    """JSON of written name -> type, a colon and the value's text; CONCAT of a NULL is NULL."""
    pairs = [f"{literal(column.name)}, {_value(column, side)}" for column in columns]
    return "JSON_OBJECT(" + ",\n        ".join(pairs) + ")"


def _value(column: Column, side: str) -> str:
    others = _UCS2 if column.declared.endswith(UCS2) else _TEXT
    word, text = _FORMS.get(declared_word(column), others)
    column_sql = f"{side}.{quoted(column.real)}"
    value = f"CONCAT('{word}:', {text.format(column_sql)})"
    # A zero date is not a time: MariaDB returns NULL, MySQL 0.
    return f"COALESCE({value}, CONCAT('TIMESTAMP:', {column_sql}))" if word == "EPOCH" else value


class MysqlDdl:
    # Exact for any session time zone, unlike UNIX_TIMESTAMP(NOW(6)).
    now = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) / 1e6)"
    quoted = staticmethod(quoted)
    image = staticmethod(image)

    def __init__(self, home: str) -> None:
        self.home = home
        self.mark = f"{quoted(home)}.migrator_mark"
        self.ticket = f"{quoted(home)}.migrator_ticket"

    def tables(self) -> list[str]:
        ticket = (
            "id INT NOT NULL PRIMARY KEY, epoch BIGINT NOT NULL, number BIGINT NOT NULL,"
            " installation VARCHAR(64) NOT NULL, version INT NOT NULL, job VARCHAR(255) NOT NULL,"
            " marked_by VARCHAR(16) NOT NULL, words MEDIUMTEXT NOT NULL"
        )
        return [
            _SQL.text("mark_table", mark=self.mark, version=VERSION),
            f"CREATE TABLE IF NOT EXISTS {self.ticket} ({ticket}) {_FORM}",
        ]

    def no_tables(self) -> list[str]:
        return [f"DROP TABLE IF EXISTS {self.mark}", f"DROP TABLE IF EXISTS {self.ticket}"]

    def triggers(self, captured: Captured) -> list[Trigger]:
        bodies = [self._body(captured, event) for event in EVENTS]
        # An ALTER renames members of ENUM and SET, changes expressions and swaps names, and fires no trigger.
        read = None if captured.watched is None else {*captured.columns, *captured.watched}
        of_the_table = [column for column in captured.table.columns if column.sql is None]
        words = [word for one in of_the_table if read is None or one.name in read for word in one.words]
        note = columns_note(captured, digest_of(*bodies, *words, *captured.made_by))
        digest = digest_of(note)
        bodies = [self._body(captured, event, f"{note}\n") for event in EVENTS]
        return [
            self._trigger(captured, event[0].lower(), digest, f"AFTER {event}", body)
            for event, body in zip(EVENTS, bodies, strict=True)
        ]

    @property
    def allowed(self) -> str:
        """SQL for whether the session belongs to reverse; by database, since each may have its own job."""
        return f"@migrator_reverse = {literal(self.home)}"

    def refusing(self, captured: Captured) -> list[Trigger]:
        raised = f"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = {literal(refusal(captured.name))}"
        body = f"IF NOT COALESCE({self.allowed}, FALSE)\nTHEN {raised}; END IF"
        digest = digest_of(body)
        return [
            self._trigger(captured, f"{REFUSES}{event.lower()}", digest, f"BEFORE {event}", body)
            for event in EVENTS
        ]

    def _trigger(self, captured: Captured, part: str, digest: str, event: str, body: str) -> Trigger:
        return _trigger(captured.name, _name(captured, self.home), part, digest, event, body)

    def _body(self, captured: Captured, event: str, note: str = "") -> str:
        """One INSERT … VALUES.

        With SELECT it would keep the lock of the marks' ids until the service's statement ends. That blocks
        all other writers (innodb_autoinc_lock_mode 1, MariaDB's default).
        """
        columns, sides = columns_of(captured, captured.columns), EVENTS[event]
        targets = ", ".join(["table_name", *(IMAGES[side] for side in sides), "changed_at"])
        values = ",\n    ".join([literal(captured.name), *(image(columns, side) for side in sides), self.now])
        insert = f"INSERT INTO {self.mark} ({targets})\n{note}VALUES ({values})"
        if event != "UPDATE" or not captured.watched:
            return insert
        condition = "\n    OR ".join(map(_changed, columns_of(captured, captured.watched)))
        return f"IF {condition}\nTHEN {insert}; END IF"


def _trigger(table: str, place: Name, part: str, digest: str, event: str, body: str) -> Trigger:
    name = trigger_name(table, part, digest)
    own = qualified(place[0], name, "`")
    create = f"CREATE TRIGGER {own} {event} ON {qualified(*place, '`')} FOR EACH ROW\n{body}"
    return Trigger(table, name, digest, (create,), (f"DROP TRIGGER {own}",))


def _changed(column: Column) -> str:
    """Compares texts by bytes, because a collation treats some as equal, and times by instant."""
    word = declared_word(column)
    old, new = (f"{side}.{quoted(column.real)}" for side in ("OLD", "NEW"))
    if word == "timestamp":
        nulls = f"({old} IS NULL) <> ({new} IS NULL)"
        return f"NOT (UNIX_TIMESTAMP({old}) <=> UNIX_TIMESTAMP({new})) OR {nulls}"
    if word in _FORMS:
        return f"NOT ({old} <=> {new})"
    return f"NOT (CAST({old} AS BINARY) <=> CAST({new} AS BINARY))"


def declared_word(column: Column) -> str:
    """Return int for `int(10) unsigned`."""
    return column.declared.lower().partition("(")[0].partition(" ")[0]


# ── Cascades fire no triggers of the child: triggers of the parent leave the marks ──


Name = tuple[str, str]
"""(database, table)."""
Indexes = Mapping[Name, Mapping[str, Sequence[str]]]
"""By table, its indexes with their columns in order."""


class Cascade(Struct, frozen=True):
    """A foreign key with an action on rows of `child`.

    `name`: of the constraint.
    `columns`: (child's, parent's).
    `on_delete`, `on_update`: CASCADE and the like.
    `index`: begins with these columns; '' if the child has none.
    """

    child: Name
    parent: Name
    columns: tuple[tuple[str, str], ...]
    on_delete: str
    on_update: str
    name: str = ""
    index: str = ""

    @property
    def theirs(self) -> tuple[str, ...]:
        return tuple(theirs for _, theirs in self.columns)


Chain = tuple[Cascade, ...]
"""From the changed rows upwards: each cascade's parent is the next one's child."""


def cascades(connection: Connection) -> list[Cascade]:
    keys: dict[tuple[str, str, str], list[sa.Row[tuple[str, ...]]]] = {}
    indexes = _indexes(connection)
    for row in connection.execute(QUERIES["cascades"]):
        if row.on_delete in ACTS or row.on_update in ACTS:
            keys.setdefault((row.child_schema, row.child, row.name), []).append(row)
    return [
        Cascade(
            child=(rows[0].child_schema, rows[0].child),
            parent=(rows[0].parent_schema, rows[0].parent),
            columns=tuple((row.own, row.theirs) for row in rows),
            on_delete=rows[0].on_delete,
            on_update=rows[0].on_update,
            name=rows[0].name,
            index=_index_of(
                [row.own for row in rows], indexes.get((rows[0].child_schema, rows[0].child), {})
            ),
        )
        for rows in keys.values()
    ]


def _indexes(connection: Connection) -> Indexes:
    by_table: dict[Name, dict[str, list[str]]] = {}
    for row in connection.execute(QUERIES["all_indexes"]):
        by_table.setdefault((row.home, row.name), {}).setdefault(row.index_name, []).append(row.column_name)
    return by_table


def _index_of(columns: Sequence[str], indexes: Mapping[str, Sequence[str]]) -> str:
    leading = _folded(columns)
    fit = [(len(own), name) for name, own in indexes.items() if _folded(own)[: len(leading)] == leading]
    return min(fit)[1] if fit else ""


def _folded(names: Sequence[str]) -> list[str]:
    return [name.lower() for name in names]


def circles(
    all_cascades: Sequence[Cascade], tables: Sequence[Captured], home: str
) -> list[tuple[str, Chain]]:
    """Captured tables that deletions reach through a circle of foreign keys, of unknown depth, with the circle."""
    circle_by_table: dict[Name, Chain] = {}
    for start in sorted({key.parent for key in all_cascades}):
        chains = list(_chains(all_cascades, start, None))
        circle = next((chain for chain in chains if _is_circle(chain) and chain[0].child == start), ())
        if circle:
            circle_by_table |= {
                chain[0].child: circle for chain in chains if chain[0].child not in circle_by_table
            }
    found = ((table.name, circle_by_table.get(_name(table, home))) for table in tables)
    return [(name, circle) for name, circle in found if circle]


def _of_parents(connection: Connection, tables: Sequence[Captured], ddl: MysqlDdl) -> Iterator[Trigger]:
    all_cascades = cascades(connection)
    captured = {_name(table, ddl.home): table for table in tables}
    for parent in sorted({key.parent for key in all_cascades}):
        for kind in _KINDS:
            if reached := _reached(all_cascades, parent, captured, kind):
                yield _of_parent(parent, kind, reached, ddl)


def _name(captured: Captured, home: str) -> Name:
    return captured.table.schema or home, captured.table.real


def _reached(
    all_cascades: Sequence[Cascade], parent: Name, captured: Mapping[Name, Captured], kind: str
) -> list[tuple[Captured, Chain]]:
    referred = frozenset(name for key in all_cascades if key.parent == parent for name in _folded(key.theirs))
    goes = _chains(all_cascades, parent, None)
    moves = _chains(all_cascades, parent, referred, updated=frozenset({parent}))
    return [
        (captured[chain[0].child], chain)
        for chain in (goes if kind == "gone" else moves)
        if chain[0].child in captured and not _is_circle(chain)
    ]


def _chains(
    all_cascades: Sequence[Cascade],
    table: Name,
    changed: frozenset[str] | None,
    above: Chain = (),
    updated: frozenset[Name] = frozenset(),
) -> Iterator[Chain]:
    """Every chain of cascades when rows are deleted (`changed` None) or these columns change.

    Columns and actions are followed, so two tables that refer to each other by different columns make no
    circle.
    `updated`: tables that InnoDB does not update again: it fails the statement, as RESTRICT does. A chain
    that comes to a deletion a second time ends there (`_is_circle`).
    Source: MariaDB and MySQL, storage/innobase/row/row0ins.cc, row_ins_cascade_ancestor_updates_table.
    """
    for key in all_cascades:
        if key.parent != table or (after := _after(key, changed)) == frozenset():
            continue
        if after is not None and key.child in updated:
            continue
        chain = (key, *above)
        yield chain
        if not _is_circle(chain):
            passed = updated if after is None else updated | {key.child}
            yield from _chains(all_cascades, key.child, after, chain, passed)


def _after(key: Cascade, changed: frozenset[str] | None) -> frozenset[str] | None:
    rule = key.on_delete if changed is None else key.on_update
    if rule not in ACTS:
        return frozenset()
    if changed is None:
        return None if rule == "CASCADE" else frozenset(own.lower() for own, _ in key.columns)
    moved = [own.lower() for own, theirs in key.columns if theirs.lower() in changed]
    return frozenset(moved if rule == "CASCADE" or not moved else (own.lower() for own, _ in key.columns))


def _is_circle(chain: Chain) -> bool:
    deletes = all(key.on_delete == "CASCADE" for key in chain)
    return deletes and chain[0].child in {key.parent for key in chain}


# ── triggers ──

_KINDS: Mapping[str, tuple[str, str, str]] = {
    "gone": ("BEFORE DELETE", "OLD", "image_before"),
    "from": ("BEFORE UPDATE", "OLD", "image_before"),
    "to": ("AFTER UPDATE", "NEW", "image_after"),
}


def _of_parent(parent: Name, kind: str, reached: Sequence[tuple[Captured, Chain]], ddl: MysqlDdl) -> Trigger:
    event, side, column = _KINDS[kind]
    table = parent[1] if parent[0] == ddl.home else ".".join(parent)
    insert = f"INSERT INTO {ddl.mark} (table_name, {column}, changed_at)"
    blocks = (
        _marked(captured, chain, side, insert, ddl, if_changed=kind != "gone") for captured, chain in reached
    )
    body = f"BEGIN\n{''.join(blocks)}END"
    return _trigger(table, parent, kind, digest_of(body), event, body)


def _marked(
    captured: Captured, chain: Chain, side: str, insert: str, ddl: MysqlDdl, *, if_changed: bool
) -> str:
    leave = f"{insert}\n    VALUES ({literal(captured.name)}, migrator_image, {ddl.now})"
    with_index, without = (
        _SQL.text(
            "row_by_row", select=_select(captured, chain, side, _tables(chain, by_index=by)), insert=leave
        )
        + "\n"
        for by in (True, False)
    )
    indexed = _tables(chain, by_index=True)
    block = _SQL.text("by_index", indexed=indexed, without=without, with_index=with_index) + "\n"
    if not if_changed:
        return block
    # Nothing is locked below a parent whose key does not change.
    moved = (
        f"NOT (CAST(OLD.{quoted(theirs)} AS BINARY) <=> CAST(NEW.{quoted(theirs)} AS BINARY))"
        for theirs in _deciding(chain)
    )
    return f"IF {' OR '.join(moved)} THEN\n{block}END IF;\n"


def _deciding(chain: Chain) -> list[str]:
    passed_on = set(_folded(chain[0].theirs))
    for key in chain[1:]:
        handed_on = [
            theirs for own, theirs in key.columns if key.on_update != "CASCADE" or own.lower() in passed_on
        ]
        passed_on = set(_folded(handed_on))
    return [theirs for theirs in chain[-1].theirs if theirs.lower() in passed_on]


def _select(captured: Captured, chain: Chain, side: str, tables: str) -> str:
    """The captured rows (r0) that the changed row reaches through r1, r2, …."""
    columns = columns_of(captured, captured.columns)
    links = " AND ".join(
        f"r{n}.{quoted(own)} = {side if n == len(chain) - 1 else f'r{n + 1}'}.{quoted(theirs)}"
        for n, key in enumerate(chain)
        for own, theirs in key.columns
    )
    # Rows that a foreign key has changed are visible to this transaction; a lock would only block other writers' inserts.
    lock = "\nLOCK IN SHARE MODE" if side == "OLD" else ""
    return f"SELECT {image(columns, 'r0')}\nFROM {tables}\nWHERE {links}{lock}"


def _tables(chain: Chain, *, by_index: bool) -> str:
    """Tables from the parent down: another order would lock rows that are not below it."""
    hints = [f" FORCE INDEX ({quoted(key.index)})" if by_index and key.index else "" for key in chain]
    names = [f"{quoted(key.child[0])}.{quoted(key.child[1])} AS r{n}" for n, key in enumerate(chain)]
    return " STRAIGHT_JOIN ".join(reversed([name + hint for name, hint in zip(names, hints, strict=True)]))


_OWN = ("migrator_mark", "migrator_ticket")
_OWN_RIGHTS = ("INSERT", "UPDATE", "DELETE", "SELECT")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def home_of(ddl: Ddl) -> str:
    assert isinstance(ddl, MysqlDdl)
    return ddl.home


def _ddl(connection: Connection) -> MysqlDdl:
    return MysqlDdl(str(connection.exec_driver_sql("SELECT DATABASE()").scalar_one()))


# ── triggers of ours ──


def _our_triggers(connection: Connection, ddl: MysqlDdl) -> Iterator[ExistingTrigger]:
    for row in connection.execute(QUERIES["triggers"]):
        ours = OUR_TRIGGER.fullmatch(row.trigger)
        # Another database of the server may have a capture of its own.
        body = row.body or ""  # empty to a user without TRIGGER
        if ours is None or not (f"INSERT INTO {ddl.mark} " in body or ddl.allowed in body):
            continue
        table = row.name if row.schema == ddl.home else f"{row.schema}.{row.name}"
        drop = f"DROP TRIGGER {quoted(row.schema)}.{quoted(row.trigger)}"
        yield ExistingTrigger(table, row.trigger, ours[1], drop=(drop,), text=body)


def _hidden(connection: Connection, ddl: MysqlDdl, table: Captured) -> bool:
    return not rights_of_user(connection)("TRIGGER", table.table.schema or ddl.home, table.table.real)


# ── refusals ──


def _views(connection: Connection, ddl: MysqlDdl) -> set[str]:
    rows = connection.execute(QUERIES["views"])
    return {row.name if row.schema == ddl.home else f"{row.schema}.{row.name}" for row in rows}


def _refusals(connection: Connection, ddl: MysqlDdl, tables: Sequence[Captured]) -> Iterator[Refusal]:
    may, user = rights_of_user(connection), connection.exec_driver_sql("SELECT CURRENT_USER()").scalar_one()
    user = "@".join(f"'{part}'" for part in str(user).rsplit("@", 1))
    for own in _OWN:
        rights = _OWN_RIGHTS if sa.inspect(connection).has_table(_OWN[1]) else ("CREATE", *_OWN_RIGHTS)
        if missing := ", ".join(right for right in rights if not may(right, ddl.home, own)):
            # CREATE may be granted on a table that does not exist yet.
            grant = f"GRANT {missing} ON {quoted(ddl.home)}.{own} TO {user}"
            yield Refusal(f"this user lacks {missing} on our table {own} in database {ddl.home}; {grant}")
    log, trusted = connection.exec_driver_sql("SELECT @@log_bin, @@log_bin_trust_function_creators").one()
    if log and not trusted and not may("SUPER", ""):
        what = "the server keeps a binary log and takes triggers from users with SUPER only"
        yield Refusal(
            f"{what}; SET GLOBAL log_bin_trust_function_creators = 1 (on RDS in the parameter group)",
            triggers_only=True,
        )
    for table in tables:
        schema = table.table.schema or ddl.home
        row = connection.execute(QUERIES["table_kind"], {"schema": schema, "name": table.table.real}).first()
        if row is None:
            yield Refusal(f"table {table.name} is gone; pull the schema again")
        elif row.kind == "VIEW":
            yield Refusal(f"{table.name} is a view, which has no triggers; {VIEW_ADVICE}")
        elif row.engine != "InnoDB":
            what = f"is kept by {row.engine}, which has no transactions: a change and its capture could not commit together"
            yield Refusal(f"table {table.name} {what}; ALTER TABLE … ENGINE = InnoDB")
        elif not may("TRIGGER", schema, table.table.real):
            grant = f"GRANT TRIGGER ON {quoted(schema)}.{quoted(table.table.real)} TO {user}"
            yield Refusal(f"table {table.name}: this user lacks TRIGGER; {grant}", triggers_only=True)
    for name, circle in circles(cascades(connection), tables, ddl.home):
        keys = ", ".join(f"{key.name} of {key.child[1]}" for key in reversed(circle))
        what = f"foreign keys reach it in a circle of ON DELETE CASCADE ({keys}), and fire no trigger here"
        yield Refusal(
            f"table {name}: {what}; let one of them RESTRICT and the service delete the rows itself",
            triggers_only=True,
        )


# ── images ──


def _decode(_: Connection, __: dict[int, int]) -> Decode:
    from pymysql.constants import FIELD_TYPE

    from migrator.source.engines.mysql.connect import from_text

    own: dict[str, Callable[[str], Any]] = {
        "TEXT": str,
        "HEX": bytes.fromhex,
        "UCS2": of_ucs2,
        "EPOCH": _moment,
    }

    def decode(word: str, text: str) -> Any:
        return own[word](text) if word in own else from_text(getattr(FIELD_TYPE, word), text)

    return decode


def _moment(seconds: str) -> datetime | str:
    """The value of a TIMESTAMP; 0 seconds is the server's zero date, which the driver leaves as text."""
    number = Decimal(seconds)
    if not number:
        return "0000-00-00 00:00:00" + seconds[1:]
    whole = int(number)
    return _EPOCH + timedelta(seconds=whole, microseconds=int((number - whole) * 1_000_000))


CAPTURING = Capturing(
    ddl=_ddl,
    schema=None,
    prefix="migrator_",
    triggers=_our_triggers,
    more_triggers=_of_parents,
    hidden=_hidden,
    leftovers=lambda _: [],
    refusals=_refusals,
    views=_views,
    limits=("TRUNCATE and ALTER TABLE … DROP PARTITION fire no trigger here: use DELETE on captured tables",),
    decode=_decode,
    locks_rows=" FOR UPDATE SKIP LOCKED",
    # With FORCE INDEX (PRIMARY) it would still wait for marks of transactions that are open.
    # By a list of ids these servers may read the whole table, and then wait for marks of open transactions.
    updates_listed="UPDATE {mark} FORCE INDEX (PRIMARY) SET {values} WHERE id IN ({ids})",
    deletes_listed=(
        "DELETE {mark} FROM JSON_TABLE('[{ids}]', '$[*]' COLUMNS (id bigint PATH '$')) AS listed"
        " STRAIGHT_JOIN {mark} FORCE INDEX (PRIMARY) ON {mark}.id = listed.id"
    ),
    # MariaDB's is refused (source/capture/log/mysql/server.py).
    log="binlog",
)
