"""Capture in a source: triggers installed and inspected, refused tables, and the source's counts of changes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from urllib.parse import quote, unquote

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.mapping.items.changes import captured_name, captured_tables
from migrator.mapping.model.facts import Captured, EntityPlan, TableFacts
from migrator.mapping.model.live import (
    ActivityCounts,
    CaptureState,
    Installation,
    MarkedBy,
    Step,
    TableCapture,
)
from migrator.runtime.errors import SettingsError, amount
from migrator.runtime.values import replace
from migrator.source.capture.marks import FIRST_EPOCH, counter
from migrator.source.engines.connect import engine_at, view_names
from migrator.source.engines.ddl import (
    VERSION,
    Ddl,
    ExistingTrigger,
    Trigger,
    columns_named,
    is_same,
    made_by,
    noted_words,
    respelled,
    shown_word,
    spelling_of,
)
from migrator.source.engines.postgresql.capture import PARTS
from migrator.source.engines.shared import shown, split
from migrator.source.sql.transactions import Writing

# ── Our triggers and tables in the source's catalogue ──


def existing_triggers(connection: Connection, ddl: Ddl) -> list[ExistingTrigger]:
    return list(engine_at(connection).capturing.triggers(connection, ddl))


def has_table(connection: Connection, name: str = "ticket") -> bool:
    """Whether our table exists; that of marks may have been dropped alone."""
    capturing = engine_at(connection).capturing
    return sa.inspect(connection).has_table(f"{capturing.prefix}{name}", schema=capturing.schema)


def has_log(connection: Connection) -> bool:
    capturing = engine_at(connection).capturing
    home = capturing.schema or connection.dialect.default_schema_name
    # An inspector would query the table itself, which is denied to a user without rights on it, even if it does not exist.
    found = connection.execute(_HAS_TABLE, {"home": home, "name": f"{capturing.prefix}log"})
    return bool(found.scalar_one())


_HAS_TABLE = sa.text(
    "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = :home AND table_name = :name"
)


# ── Reasons why a table's changes cannot be captured: kinds of tables, privileges, circles of foreign keys ──


def refusals(
    connection: Connection, ddl: Ddl, tables: Sequence[Captured], *, by_triggers: bool = True
) -> list[str]:
    """All refusals at once. Without `by_triggers`, services leave the marks and refusals about triggers are
    omitted.
    """
    faults = []
    for table in tables:
        try:
            ddl.triggers(table)
        except SettingsError as error:
            faults.append(str(error))
    engine_refusals = engine_at(connection).capturing.refusals(connection, ddl, tables)
    faults += [refusal.text for refusal in engine_refusals if by_triggers or not refusal.triggers_only]
    return faults


def _definitions(connection: Connection) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, text in connection.execute(engine_at(connection).queries["definitions"]):
        found.setdefault(name.lower(), []).append(text or "")
    return {name: sorted(texts) for name, texts in found.items()}


# ── Installing and removing capture: `model.live.Capture` by SQL ──

_UNMARKED = (
    "only services that use the adapter capture changes: what others write (a script, a person, a service without it,"
    " a trigger of the database) reaches the table by `migrator verify --repair` alone"
)


_NO_LOG = "only the logs of PostgreSQL and MySQL can be captured; install without --by log"


class SqlCapture:
    """`writing` has a lock timeout of seconds: while our statement waits for a table, the service would wait
    behind it.
    """

    means = "triggers"

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def at_once(self) -> SqlCapture:
        return SqlCapture(self._writing.at_once())

    def captured(self, plans: Sequence[EntityPlan]) -> list[Captured]:
        with_changes = {plan.entity.name for plan in plans if plan.changes}
        tables = captured_tables(plans)

        def work(connection: Connection, ddl: Ddl) -> list[Captured]:
            view_names = engine_at(connection).capturing.views(connection, ddl)
            is_defined = any(table.texts for table in tables.values())
            definitions = _definitions(connection) if is_defined else {}
            return [
                replace(table, made_by=made_by(table.texts, definitions))
                for name, table in sorted(tables.items())
                if name not in view_names or not {lookup.entity for lookup in table.lookups} <= with_changes
            ]

        return self._writing.look("looking for views", work)

    def refusals(self, tables: Sequence[Captured], marked_by: MarkedBy = "triggers") -> list[str]:
        if marked_by == "log":
            return [f"{self._writing.place}: {_NO_LOG}"]

        def work(connection: Connection, ddl: Ddl) -> list[str]:
            reasons = refusals(connection, ddl, tables, by_triggers=marked_by == "triggers")
            return [*_triggers_in_the_way(connection, ddl), *reasons] if marked_by == "services" else reasons

        return self._writing.look("looking for what cannot be captured", work)

    def limits(self, marked_by: MarkedBy = "triggers") -> list[str]:
        if marked_by == "services":
            return [_UNMARKED]

        def work(connection: Connection, _: Ddl) -> list[str]:
            return list(engine_at(connection).capturing.limits)

        return self._writing.look("looking for what cannot be captured", work)

    def installation(self) -> Installation | None:
        return self._writing.look("looking for capture", _installation)

    def install_steps(
        self, tables: Sequence[Captured], job: str, marked_by: MarkedBy = "triggers"
    ) -> list[Step]:
        def work(connection: Connection, ddl: Ddl) -> list[Step]:
            before = _installation(connection, ddl)
            own = own_steps(connection, ddl, job, marked_by)
            if marked_by == "services":
                capturing, _ = _existing(connection, ddl, tables)
                in_the_way = _drop_steps([trigger for trigger in capturing if trigger.refuses])
                return [*own, *in_the_way, *_words_step(connection, ddl, tables)]
            steps = [*own, *_trigger_steps(connection, ddl, tables)]
            return [*steps, _switch_step(ddl)] if before and before.marked_by == "services" else steps

        return self._writing.look("comparing triggers", work)

    def refuse_steps(self, tables: Sequence[TableFacts]) -> list[Step]:
        captured = [Captured(captured_name(table), table, (), None, ()) for table in tables]

        def work(connection: Connection, ddl: Ddl) -> list[Step]:
            existing = [trigger for trigger in existing_triggers(connection, ddl) if trigger.refuses]
            steps = [_table_step(ddl.refusing(one), _of(existing, one.name), one.name) for one in captured]
            return [step for step in steps if step.statements]

        return self._writing.look("looking for triggers", work)

    def uninstall_steps(self) -> list[Step]:
        def work(connection: Connection, ddl: Ddl) -> list[Step]:
            steps = _drop_steps(existing_triggers(connection, ddl))
            leftovers = engine_at(connection).capturing.leftovers(connection)
            last = (*leftovers, *(ddl.no_tables() if has_table(connection) else ()))
            return [*steps, Step("", last)] if last else steps

        return self._writing.look("looking for triggers", work)

    def taken_away(self, tables: Sequence[str]) -> str:
        return f"triggers of {amount(len(tables), 'table')} removed"

    def do(self, step: Step) -> None:
        def work(connection: Connection, _: Ddl) -> None:
            plain = connection.execution_options(no_parameters=True)
            for statement in step.statements:
                plain.exec_driver_sql(statement)

        self._writing.write(f"changing triggers of {step.table}" if step.table else "our tables", work)

    def states(self, tables: Sequence[Captured]) -> list[TableCapture]:
        def work(connection: Connection, ddl: Ddl) -> list[TableCapture]:
            (existing, refusing), here = _existing(connection, ddl, tables), _installation(connection, ddl)
            refused = [TableCapture(name, "refused") for name in dict.fromkeys(one.table for one in refusing)]
            by_services = here is not None and here.marked_by == "services"
            if by_services and not existing:
                return [*_spelled(_kept_words(connection, ddl), tables), *refused]
            expected = _expected_triggers(connection, ddl, tables)
            extra = dict.fromkeys(table.table for table in existing if table.table not in expected)
            compared_tables = [_compared(name, own, _of(existing, name)) for name, own in expected.items()]
            states = [*compared_tables, *(TableCapture(name, "extra") for name in extra)]
            if by_services:
                left = ("missing", "partition")
                states = [replace(one, state="services") if one.state in left else one for one in states]
            hidden = engine_at(connection).capturing.hidden
            unseen = {one.table for one in states if one.state == "missing" and not _of(existing, one.table)}
            unseen = {one.name for one in tables if one.name in unseen and hidden(connection, ddl, one)}
            states = [replace(one, state="hidden") if one.table in unseen else one for one in states]
            return [*states, *refused]

        return self._writing.look("comparing triggers", work)

    def close(self) -> None:
        self._writing.close()


def _existing(
    connection: Connection, ddl: Ddl, tables: Sequence[Captured]
) -> tuple[list[ExistingTrigger], list[ExistingTrigger]]:
    """Our triggers that an install compares, with refusing ones of a table that is captured (again); and those
    that stay, because their tables' rows follow items.
    """
    captured, existing = {table.name for table in tables}, existing_triggers(connection, ddl)
    refusing = [trigger for trigger in existing if trigger.refuses and trigger.table not in captured]
    return [trigger for trigger in existing if trigger not in refusing], refusing


def _installation(connection: Connection, ddl: Ddl) -> Installation | None:
    return counter(connection, ddl) if has_table(connection) else None


def _triggers_in_the_way(connection: Connection, ddl: Ddl) -> list[str]:
    here = _installation(connection, ddl)
    marking = (trigger for trigger in existing_triggers(connection, ddl) if not trigger.refuses)
    if not any(marking) and (here is None or here.marked_by == "services"):
        return []
    by = (
        "the reader of the log captures"
        if here is not None and here.marked_by == "log"
        else "triggers capture"
    )
    what = f"{by} the changes here, and services would not know when that ends"
    return [f"{what}; run `migrator capture uninstall` first, or install without --by services"]


def own_steps(connection: Connection, ddl: Ddl, job: str, marked_by: MarkedBy) -> list[Step]:
    if not has_table(connection):
        return [_first_step(ddl, job, marked_by)]
    if has_table(connection, "mark"):
        return []
    # A new installation id: marks were lost, so items may be stale.
    renamed = f"UPDATE {ddl.ticket} SET installation = '{uuid.uuid4().hex}' WHERE id = 1"
    return [Step("", (*ddl.tables(), renamed))]


def _trigger_steps(connection: Connection, ddl: Ddl, tables: Sequence[Captured]) -> list[Step]:
    existing, refusing = _existing(connection, ddl, tables)
    expected = _expected_triggers(connection, ddl, tables)
    steps = [_table_step(triggers, _of(existing, name), name) for name, triggers in expected.items()]
    steps += [step for step in _drop_steps(existing) if step.table not in expected]
    return [*(step for step in steps if step.statements), *_cleanup(connection, expected, refusing)]


def trigger_drop_steps(connection: Connection, ddl: Ddl, tables: Sequence[Captured]) -> list[Step]:
    existing, refusing = _existing(connection, ddl, tables)
    return [*_drop_steps(existing), *_cleanup(connection, {}, refusing)]


# ── The words of values, if services leave the marks and no trigger can store them ──


def _words_step(connection: Connection, ddl: Ddl, tables: Sequence[Captured]) -> list[Step]:
    kept = _kept_words(connection, ddl) if has_table(connection) else {}
    words = {table.name: spelling_of(table) for table in tables}
    if kept == {name: {column: list(of) for column, of in found.items()} for name, found in words.items()}:
        return []
    # Without the characters that are special in an SQL literal of any engine.
    text = quote(json.dumps(words, sort_keys=True), safe='{}[]":, ')
    return [Step("", (f"UPDATE {ddl.ticket} SET words = '{text}' WHERE id = 1",))]


def _kept_words(connection: Connection, ddl: Ddl) -> dict[str, dict[str, list[str]]]:
    text = connection.execute(sa.text(f"SELECT words FROM {ddl.ticket} WHERE id = 1")).scalar()
    kept: dict[str, dict[str, list[str]]] = json.loads(unquote(text or "{}"))
    return kept


def _spelled(
    kept: Mapping[str, Mapping[str, Sequence[str]]], tables: Sequence[Captured]
) -> list[TableCapture]:
    states = []
    for table in tables:
        is_swapped, gone = respelled(table, kept.get(table.name, {}))
        states.append(TableCapture(table.name, "stale" if gone or is_swapped else "services", (), gone))
    return states


def _switch_step(ddl: Ddl) -> Step:
    """The last step: until every trigger exists, services leave their marks, and some are duplicates."""
    do, undo = (f"UPDATE {ddl.ticket} SET marked_by = '{by}' WHERE id = 1" for by in ("triggers", "services"))
    return Step("", (do,), (undo,))


def _first_step(ddl: Ddl, job: str, marked_by: MarkedBy) -> Step:
    name = "'" + job.replace("'", "''") + "'"
    row = f"VALUES (1, {FIRST_EPOCH}, 0, '{uuid.uuid4().hex}', {VERSION}, {name}, '{marked_by}', '')"
    begin = (
        f"INSERT INTO {ddl.ticket} (id, epoch, number, installation, version, job, marked_by, words) {row}"
    )
    return Step("", (*ddl.tables(), begin), tuple(ddl.no_tables()))


def _expected_triggers(
    connection: Connection, ddl: Ddl, tables: Sequence[Captured]
) -> dict[str, list[Trigger]]:
    """Triggers by table, also of parents whose foreign keys reach captured tables (MySQL), and of partitions
    (PostgreSQL).
    """
    by_table = {table.name: ddl.triggers(table) for table in tables}
    for trigger in engine_at(connection).capturing.more_triggers(connection, tables, ddl):
        by_table.setdefault(trigger.table, []).append(trigger)
    return by_table


def _of(triggers: Sequence[ExistingTrigger], table: str) -> list[ExistingTrigger]:
    return [trigger for trigger in triggers if trigger.table == table]


def _is_there(trigger: Trigger, existing: Sequence[ExistingTrigger]) -> bool:
    words = noted_words(*trigger.create)
    return any(
        is_same(trigger, other) and other.enabled and (words is None or words == noted_words(other.text))
        for other in existing
    )


def _words_gone(expected: Sequence[Trigger], existing: Sequence[ExistingTrigger]) -> list[str]:
    words = noted_words(*(statement for trigger in expected for statement in trigger.create))
    noted = noted_words(*(trigger.text for trigger in existing)) or set()
    gone = set() if words is None else noted - words
    return list(dict.fromkeys(shown_word(column, word) for column, word in sorted(gone)))


def _compared(table: str, expected: Sequence[Trigger], existing: Sequence[ExistingTrigger]) -> TableCapture:
    state, gone = _state(expected, existing), _words_gone(expected, existing)
    if gone and state in ("captured", "missing"):
        return TableCapture(table, "stale", (), tuple(gone))
    if state == "missing" and all(trigger.name == PARTS["truncate"] for trigger in expected):
        # Rows are marked by the parent's triggers, which PostgreSQL clones to every new partition.
        return TableCapture(table, "partition")
    if state != "stale":
        return TableCapture(table, state)
    new = columns_named(*(statement for trigger in expected for statement in trigger.create))
    old = columns_named(*(trigger.text for trigger in existing))
    return TableCapture(table, state, tuple(sorted(new - old)), tuple(sorted(old - new)))


def _state(expected: Sequence[Trigger], existing: Sequence[ExistingTrigger]) -> CaptureState:
    digests = {trigger.digest for trigger in expected}
    if any(
        other.digest not in digests and not any(is_same(trigger, other) for trigger in expected)
        for other in existing
    ):
        return "stale"
    if any(not trigger.enabled for trigger in existing):
        return "disabled"
    are_there = (any(is_same(trigger, other) for other in existing) for trigger in expected)
    return "captured" if all(are_there) else "missing"


def _table_step(expected: Sequence[Trigger], existing: Sequence[ExistingTrigger], table: str) -> Step:
    """Create new triggers before old ones are dropped, so that no change is missed (MySQL commits each statement)."""
    create = [
        statement for trigger in expected if not _is_there(trigger, existing) for statement in trigger.create
    ]
    names = {trigger.name for trigger in expected}
    drop = [
        statement
        for other in existing
        if other.name not in names and not any(is_same(trigger, other) for trigger in expected)
        for statement in other.drop
    ]
    undo = [statement for trigger in expected for statement in trigger.undo]
    return Step(table, (*create, *drop), tuple(undo))


def _drop_steps(triggers: Sequence[ExistingTrigger]) -> list[Step]:
    tables = dict.fromkeys(trigger.table for trigger in triggers)
    return [
        Step(table, tuple(statement for trigger in _of(triggers, table) for statement in trigger.drop))
        for table in tables
    ]


def _cleanup(
    connection: Connection, expected: Mapping[str, Sequence[Trigger]], kept: Sequence[ExistingTrigger]
) -> list[Step]:
    called = {
        statement for triggers in expected.values() for trigger in triggers for statement in trigger.undo
    }
    called |= {trigger.calls for trigger in kept}
    unused = tuple(
        statement
        for statement in engine_at(connection).capturing.leftovers(connection)
        if statement not in called
    )
    return [Step("", unused)] if unused else []


# ── Counters of changes and open transactions on PostgreSQL, MariaDB, MySQL and SQLite ──


class SqlActivity:
    """`writing`: connections to the source itself, never to a replica."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def look(self, tables: Sequence[str]) -> ActivityCounts:
        def work(connection: Connection) -> ActivityCounts:
            writers = engine_at(connection).writers
            by_table, source, blind = writers.changes(connection, tables)
            whole = _marks_ever(connection, self._writing.ddl(connection))
            opened, unseen = writers.open(connection)
            ours = {id_: pair for id_, pair in (opened or {}).items() if not pair[0] or pair[0] in tables}
            counted = {name: by_table[name] for name in tables if name in by_table}
            return ActivityCounts(
                counted,
                whole,
                source,
                blind,
                None if opened is None else {id_: table for id_, (table, _) in ours.items()},
                unseen,
                who={id_: who for id_, (_, who) in ours.items() if who},
                may_write=writers.may_write(connection, tables),
            )

        return self._writing.read("looking at changes", work)

    def views(self) -> set[str]:
        return self._writing.read("listing views", view_names)

    def named(self) -> set[str]:
        return set()

    def waiting(self, tables: Sequence[str]) -> Mapping[str, int]:
        def work(connection: Connection, ddl: Ddl) -> dict[str, int]:
            query = f"SELECT table_name, COUNT(*) FROM {ddl.mark} GROUP BY table_name"
            return {str(name or ""): int(count) for name, count in connection.exec_driver_sql(query)}

        return self._writing.write("counting changes", work)

    def read_only(self, tables: Sequence[str]) -> list[str]:
        def work(connection: Connection) -> list[str]:
            return list(engine_at(connection).writers.read_only(connection, tables))

        return self._writing.read("reading grants", work)

    def drops(self, tables: Sequence[str]) -> list[str]:
        def work(connection: Connection) -> list[str]:
            inspector = sa.inspect(connection)
            return engine_at(connection).writers.drops(
                [_quoted(connection, inspector, name) for name in tables]
            )

        return self._writing.read("naming tables", work)


def _marks_ever(connection: Connection, ddl: Ddl) -> int | None:
    inspector, query = sa.inspect(connection), engine_at(connection).writers.marks_ever
    schema, _, name = ddl.mark.replace('"', "").replace("`", "").rpartition(".")
    if not query or not inspector.has_table(name, schema or None):
        return None
    return int(connection.exec_driver_sql(query.format(mark=ddl.mark)).scalar_one() or 0)


def _quoted(connection: Connection, inspector: sa.Inspector, name: str) -> str:
    schema, table = split(inspector, name)
    parts = (table,) if table == name else (schema, table)
    return shown(connection, *parts, quote=engine_at(connection).sql.quote)
