"""`migrator reverse check|start|status|stop|verify`: rows made from a service's writes to the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import click

from migrator.cli.command_line import print_json
from migrator.cli.inert import plain
from migrator.cli.options import belonging, print_folded, print_result, progress, say, stop_on_signals
from migrator.cli.text import SHOWN, unkept_data, unkept_lines
from migrator.commands.mapping_source import inverse_data, inverse_lines
from migrator.mapping.language.redaction import key_templates, masked_keys
from migrator.mapping.model.live import MOST, RowDifference, RowsVerified, StreamJournal, Unkept, WaitingRow
from migrator.mapping.model.mapping import Mapping, Template
from migrator.runtime.errors import CLEAN, DIFFERENT, MigratorError, SettingsError, StoppedError, amount, verb
from migrator.runtime.values import asdict, picked
from migrator.stages.cutover.rollback import ROWS_OF_ITEMS, WAY_BACK
from migrator.stages.reverse.daemon import (
    DirectChangedError,
    ReverseDaemon,
    ReverseStatus,
    SqlWriterStatus,
    WhileDirect,
    status_of,
)
from migrator.stages.reverse.stage import Reverse
from migrator.stages.reverse.verify import RowVerify
from migrator.stages.session.job import ONCE
from migrator.stages.session.reverse import ReverseEdges, remembered_of, shards_of
from migrator.stages.session.session import Held, JobSession

# ── What `migrator reverse verify` came to: lines for people ──


WORDS = {
    "no item": "no item holds it",
    "no row": "items contain it, but the row is missing",
    "different": "its items differ in",
    "claims": "its items do not fit together",
    "misfit": "an item of it fits no row",
}


def rows_lines(result: RowsVerified, mapping: Mapping, *, whole_keys: bool) -> Iterator[str]:
    rows = sum(result.rows.values())
    yield f"compared both ways: {amount(rows, 'row')} and {amount(result.items, 'stored item')}"
    for (table, kind), number in sorted(result.counts.items()):
        yield f"{kind}: {number:,} of {table or 'no table'}"
    keys = _keys(result.differences[:SHOWN], mapping, whole_keys=whole_keys)
    for one, key in zip(result.differences, keys, strict=False):
        reason = f" {one.why}" if one.kind == "different" else f": {one.why}" if one.why else ""
        yield plain(f"  {one.table or 'item'} {key}: {WORDS[one.kind]}{reason}")
    rest = sum(result.counts.values()) - min(len(result.differences), SHOWN)
    if rest:
        yield f"  … and {rest:,} more"
    if result.is_cut:
        yield f"not all was compared: more than {MOST:,} rows differ"
    yield from unkept_lines(result.unkept)
    if result.is_clean and result.unkept:
        yield "rows match the items, but some attributes of items are in no row"
    elif result.is_clean:
        yield "clean: rows match the items"
    else:
        yield "not clean; `migrator reverse verify JOB --repair` writes rows by their items"
        if result.of_kinds("no item"):
            yield "with --delete-rows it also deletes rows that no item contains"


def rows_data(result: RowsVerified, mapping: Mapping, *, whole_keys: bool) -> dict[str, Any]:
    counts = [{"table": of[0], "kind": of[1], "rows": n} for of, n in sorted(result.counts.items())]
    keys = _keys(result.differences, mapping, whole_keys=whole_keys)
    found = [
        picked(one, "table", "kind") | {"key": key, "why": one.why}
        for one, key in zip(result.differences, keys, strict=True)
    ]
    return {
        "clean": result.is_clean,
        "rows": dict(result.rows),
        "items": result.items,
        "differences": counts,
        "keys": found,
        "all_compared": not result.is_cut,
        "unkept": unkept_data(result.unkept),
    }


def _keys(differences: Sequence[RowDifference], mapping: Mapping, *, whole_keys: bool) -> list[str]:
    if whole_keys:
        return [one.key for one in differences]
    templates: Sequence[Template] = key_templates(mapping)
    return [masked_keys(one.key, () if one.table else templates) for one in differences]


_SHOWN = 20


@belonging()
def check(session: JobSession, as_json: bool) -> int:
    with session.another("reverse", live_patience=ONCE) as session:
        parsed = session.parsed
        edges = ReverseEdges(session, session.job.direct or parsed.mapping.entities)
        tables, hindrances = edges.inverse.tables, _hindrances(edges)
        notes = edges.notes()
        unkept = Unkept() if hindrances else _unkept(session)
    if as_json:
        data = [inverse_data(parsed, table) for table in tables]
        found = {"ready": not hindrances, "hindrances": hindrances, "notes": notes}
        print_json(found | {"tables": data, "unkept": unkept_data(unkept)})
    else:
        print_folded("\n".join(inverse_lines(parsed, tables)))
        click.echo("".join(f"note: {note}\n" for note in notes), nl=False)
        print_folded("\n".join(unkept_lines(unkept)))
        verdict = f"not ready: {len(hindrances)} to fix" if hindrances else "ready: nothing stands in the way"
        print_folded("\n".join([*hindrances, verdict]))
    return DIFFERENT if hindrances else CLEAN


def _unkept(session: JobSession) -> Unkept:
    """Attributes that no row keeps, of entities that services write, by the journal. Other items contain
    only values of their rows."""
    if not (direct := session.on_record().direct):
        return Unkept()
    edges = ReverseEdges(session, direct)
    with edges.stage() as stage, progress() as shown:
        unkept = edges.verify(stage, shown, 0.0).unkept()
    session.unkept.save(unkept)
    return unkept


@belonging()
def start(
    session: JobSession, once: bool, restart: bool, dry_run: bool, settle_s: float, as_json: bool
) -> int:
    worked = 0
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals(session.stop))
        session = stack.enter_context(session.another("reverse", live_patience=ONCE))
        _refuse_strange(session)
        shards, remembered = shards_of(session), remembered_of(session)
        begun_at, goes_on = remembered.now(), True
        while goes_on:
            # By the journal, not by the job: it records this before the first direct write, and this process
            # may be older.
            direct = session.on_record().direct
            edges = ReverseEdges(session, direct)
            _need(_hindrances(edges), takes_rows=session.source.takes_rows)
            if dry_run:
                break
            if session.is_doing(WAY_BACK):
                # It would refuse SQL writers again, and discard a service's late writes before the rollback
                # has seen them.
                what = "`migrator cutover rollback` is running; reverse cannot start until it ends"
                raise StoppedError(f"{what}; run this command again when it has ended")
            _begin(edges, shards, restart=restart)
            for line in _writer_lines(edges.sql_writers(refuse=True)):
                say(line)
            restart = False
            with edges.stage(settle_s) as stage:
                work = WhileDirect(stage, direct, lambda: session.on_record().direct)
                daemon = ReverseDaemon(
                    edges.reader(work, shards), work, shards, stop, once, stop.wait, begun_at, None
                )
                goes_on = True
                with suppress(DirectChangedError):
                    daemon.run()
                    goes_on = False
                worked += stage.worked
        told = status_of(shards, remembered)
    lines = [f"{amount(worked, 'change')} of items worked", *_lines(told)]
    print_result({"records": worked, **_data(told)}, lines, as_json=as_json)
    return DIFFERENT if once and told.findings else CLEAN


def _hindrances(edges: ReverseEdges) -> list[str]:
    return [*edges.two_ways(), *edges.hindrances()]


def _need(found: Sequence[str], *, takes_rows: bool) -> None:
    if found:
        check = "`migrator reverse check` prints how to fix it"
        without = "complete patterns without it: `migrator cutover advance JOB PATTERN --one-way`"
        raise SettingsError("\n".join([*found, check if takes_rows else without]))


@belonging()
def verify(
    session: JobSession,
    repair: bool,
    delete_rows: bool,
    dry_run: bool,
    settle_s: float,
    as_json: bool,
    whole_keys: bool,
) -> int:
    if not repair and (dry_run or delete_rows):
        name = "--dry-run" if dry_run else "--delete-rows"
        raise SettingsError(f"{name} requires --repair (reverse verify without --repair never writes)")
    with ExitStack() as stack:
        stack.enter_context(stop_on_signals(session.stop))
        session = stack.enter_context(session.another("reverse", live_patience=ONCE))
        _refuse_strange(session)
        writes = repair and not dry_run
        # A rollback also takes it: the truth does not change while this command writes rows.
        lease = stack.enter_context(session.lease()) if writes else None
        direct = session.on_record().direct
        edges = ReverseEdges(session, direct or session.mapping.entities)
        if repair:
            _need_direct(direct)
        found = _hindrances(edges) if repair else edges.unreadable()
        _need(found, takes_rows=session.source.takes_rows)
        if writes:
            _need_begun(session)
        stage = stack.enter_context(edges.stage(settle_s))
        with progress() as shown:
            result = edges.verify(stage, shown, settle_s).run()
            if repair:
                say(_planned(result, delete_rows=delete_rows))
            if lease is not None:
                rows = edges.verify(stage, shown, settle_s)
                _repair(edges, stage, rows, lease, deletes=delete_rows)
                for line in _waiting_lines(_status_of(session)):
                    say(line)
                result = edges.verify(stage, shown, settle_s).run()
        if direct and not result.is_cut:
            session.unkept.save(result.unkept)
        data, lines = (of(result, session.mapping, whole_keys=whole_keys) for of in (rows_data, rows_lines))
        print_result(data, lines, as_json=as_json)
    return CLEAN if result.is_clean and not result.unkept else DIFFERENT


def _need_direct(direct: Collection[str]) -> None:
    if not direct:
        what = "no entity is on record as the service's to write, so no row is made of items"
        rows = "while a pattern is not complete rows are the truth, and `migrator verify --repair` makes items of them"
        raise SettingsError(f"{what}; {rows}. Once every pattern is complete, {ROWS_OF_ITEMS}")


def _need_begun(session: JobSession) -> None:
    if not shards_of(session).stream():
        what = "the stream was not begun with, and what is written meanwhile would be missed"
        raise SettingsError(f"{what}; run `migrator reverse start` first")


def _planned(result: RowsVerified, *, delete_rows: bool) -> str:
    written, unheld = result.of_kinds("no row", "different"), result.of_kinds("no item")
    stays = f"{verb(unheld, 'stay')} without --delete-rows"
    goes = f"{verb(unheld, 'are')} deleted" if delete_rows else stays
    more = "more than " if result.is_cut else ""
    return f"{more}{amount(written, 'row', 'are')} written by their items; {amount(unheld, 'row')} that no item holds {goes}"


def _repair(edges: ReverseEdges, stage: Reverse, rows: RowVerify, lease: Held, *, deletes: bool) -> None:
    """Write rows in doubt, then process the stream up to now, so that rows without items are deleted.

    Counters of new rows follow: in an empty copy of the schema they begin at 1.
    """
    session = edges.session
    work = WhileDirect(stage, frozenset(edges.names), lambda: session.on_record().direct)

    def check() -> None:
        lease.check()
        work.need_direct()

    try:
        repaired = rows.repair(check, deletes=deletes)
        say(
            f"{amount(repaired, 'row', 'were')} looked at again; the stream is worked next, then all is compared"
        )
        shards, stop = shards_of(session), session.stop
        reader, now = edges.reader(work, shards), remembered_of(session).now()
        ReverseDaemon(reader, work, shards, stop, True, stop.wait, now, None).run()
    except DirectChangedError:
        what = "other entities are direct since this command began"
        raise SettingsError(f"{what}; no row was written since; give it again") from None
    edges.move_counters()


def _refuse_strange(session: JobSession) -> None:
    """Check that the table belongs to this journal, which no other check of these commands covers."""
    _ = session.table_id
    session.refuse_strange(session.target)


def _begin(edges: ReverseEdges, shards: StreamJournal, *, restart: bool) -> None:
    if restart or not shards.stream():
        edges.begin(shards)
        say("the stream starts now: later writes become rows")
    names = ", ".join(sorted(edges.names))
    none = "no entity is direct yet: the stream is read, and nothing written"
    say(f"rows are made of the items of {names}" if names else none)


@belonging()
def status(session: JobSession, attributes: bool, as_json: bool) -> int:
    told = _status_of(session)
    writers, unkept = _sql_writers(session), Unkept()
    if attributes:
        with session.another("reverse") as reading:
            unkept = _unkept(reading)
    more = {"unkept": unkept_data(unkept)} if attributes else {}
    print_result(
        _data(told) | {"sql_writers": asdict(writers)} | more,
        [*_lines(told), *_writer_lines(writers), *unkept_lines(unkept)],
        as_json=as_json,
    )
    return CLEAN if told.is_well(session.job.cutover.lag_max_s) else DIFFERENT


def _sql_writers(session: JobSession) -> SqlWriterStatus:
    if not (direct := session.on_record().direct):
        return SqlWriterStatus()
    try:
        with session.another("reverse", live_patience=ONCE) as reading:
            return ReverseEdges(reading, direct).sql_writers(refuse=False)
    except MigratorError as error:
        return SqlWriterStatus(why=str(error))


def _writer_lines(writers: SqlWriterStatus) -> Iterator[str]:
    if writers.refused:
        yield f"SQL writers are refused: {', '.join(writers.refused)}"
    if writers.let_in:
        yield f"SQL writers are not refused: {', '.join(writers.let_in)}; `migrator reverse start` makes the triggers"
    if writers.why:
        yield f"  {writers.why}"


@belonging()
def stop(session: JobSession, as_json: bool) -> int:
    remembered_of(session).ask_to_stop()
    processes = _status_of(session).processes
    print_result(
        {"processes": processes},
        f"{amount(processes, 'process', 'end')} as soon as the page that is under way is worked",
        as_json=as_json,
    )
    return CLEAN


def _status_of(session: JobSession) -> ReverseStatus:
    return status_of(shards_of(session), remembered_of(session))


def _lines(told: ReverseStatus) -> Iterator[str]:
    if not told.begun:
        yield "the stream was not begun with; `migrator reverse start` does"
        return
    at_work = f"{amount(told.processes, 'process')} running"
    yield f"{amount(len(told.lags_s), 'open shard')}, {at_work}, {told.lag_s:.0f} s behind at most"
    for shard, lag_s in sorted(told.lags_s.items(), key=lambda one: -one[1])[:_SHOWN]:
        yield f"  {shard}: {lag_s:.0f} s"
    yield from _waiting_lines(told)


def _waiting_lines(told: ReverseStatus) -> Iterator[str]:
    gone = len(told.waiting) - len(told.parked)
    if gone:
        yield f"{amount(gone, 'row', 'go')} when all shards have passed the time at which no item held them"
    for (table, waits, why), count in Counter(map(_reason, told.parked)).most_common(_SHOWN):
        yield f"{amount(count, 'row')} of {table or 'no table'} {verb(count, 'wait')}, {waits}{f': {why}' if why else ''}"


def _reason(one: WaitingRow) -> tuple[str, str, str]:
    return one.row[0], one.waits, one.why


def _data(told: ReverseStatus) -> dict[str, Any]:
    """Keys of rows are left out: they may name people."""
    reasons = Counter(map(_reason, told.parked))
    parked = [{"table": of[0], "waits": of[1], "why": of[2], "rows": n} for of, n in reasons.items()]
    return {
        **picked(told, "begun", "processes", "lag_s", "lags_s"),
        "deletes_waiting": len(told.waiting) - len(told.parked),
        "findings": len(told.findings),
        "parked": parked,
    }
