"""Runs, their pages, progress and findings, as SQL tables."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from itertools import islice
from operator import itemgetter
from typing import Any, TypeAlias

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Row,
    Select,
    Table,
    and_,
    bindparam,
    delete,
    false,
    func,
    insert,
    literal,
    not_,
    or_,
    select,
    update,
)
from sqlalchemy.engine import URL, Engine

from migrator.journal import schema
from migrator.journal.database import (
    Database,
    InDatabase,
    bring_back,
    chunks,
    insert_or_ignore,
    insert_or_replace,
    once_only,
    reading,
    repeatable,
    seconds,
)
from migrator.journal.records import KeptRecords
from migrator.journal.schema import (
    claim,
    claimed_table,
    finding,
    open_finding,
    page,
    page_claim,
    page_part,
    plan,
    run,
)
from migrator.mapping.items.wire import read_key, write_key
from migrator.mapping.model.durations import moment
from migrator.mapping.model.journal import (
    Finding,
    FindingGroup,
    FindingKind,
    Page,
    Run,
    RunIdentity,
    RunState,
    SegmentState,
    Tally,
)
from migrator.mapping.model.live import ActivityCounts
from migrator.runtime.errors import MigratorError, StoppedError
from migrator.runtime.retry import Retry
from migrator.runtime.values import asdict

# ── Findings, stored once each ──

NAMES = Finding.__struct_fields__
_FINDINGS_AT_ONCE = 500


def _add_findings(connection: Connection, run_id: int, findings: Iterable[Finding]) -> None:
    rows = ({"run_id": run_id, "digest": _digest(entry), **_columns(entry)} for entry in findings)
    while chunk := list(islice(rows, _FINDINGS_AT_ONCE)):
        connection.execute(insert_or_ignore(connection, finding), chunk)


def columns_of(table: Table) -> list[ColumnElement[Any]]:
    return [table.c[name] for name in NAMES]


def _columns(entry: Finding) -> dict[str, str]:
    return {name: getattr(entry, name) for name in NAMES}


def _digest(entry: Finding) -> bytes:
    text = json.dumps(_columns(entry), sort_keys=True)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


# ── Findings counted by kind, entity and attribute ──

_BY = ("kind", "entity", "attribute")
_Rows: TypeAlias = tuple[Table, ColumnElement[bool]]


def _rows_of(run: Run) -> _Rows:
    """A run's findings; of a relay all open ones of its job and table, found by any relay."""
    if run.identity.kind == "relay":
        of_job = open_finding.c.job == run.identity.job
        return open_finding, and_(of_job, open_finding.c.table_id == run.identity.table_id)
    return finding, finding.c.run_id == run.id


# ── Pages of a run claimed by its processes, and parts of finished pages for the other processes ──


def parts_query(run: Run, entity: str, last: tuple[int, int], limit: int) -> Select[Any]:
    columns, (number, part) = page_part.c, last
    behind = or_(columns.number > number, and_(columns.number == number, columns.part > part))
    query = select(columns.number, columns.part, columns.data)
    query = query.where(columns.run_id == run.id, columns.entity == entity, behind)
    return query.order_by(columns.number, columns.part).limit(limit)


_CLAIM_OF_PAGE = and_(*(page_claim.c[name] == schema.page.c[name] for name in ("run_id", "entity", "number")))


def _place(run: Run, page: Page) -> dict[str, Any]:
    return {"run_id": run.id, "entity": page.entity, "number": page.number}


@cache
def _free_pages(*, is_bounded: bool) -> Select[Any]:
    table, claims = schema.page, page_claim.c
    pages = [table.c.run_id == bindparam("run"), table.c.entity == bindparam("of")]
    pages.append(table.c.number > bindparam("behind"))
    if is_bounded:
        pages.append(table.c.number <= bindparam("upto"))
    lapsed = and_(claims.who != bindparam("own"), claims.leased_until < bindparam("now"))
    return (
        select(table.c.number, table.c.after_key, table.c.upto_key)
        .select_from(table.outerjoin(page_claim, _CLAIM_OF_PAGE))
        .where(*pages, table.c.done_at.is_(None), or_(claims.who.is_(None), lapsed))
        .order_by(table.c.number)
        .limit(bindparam("n", type_=Integer))
    )


_OWN_RUN = select(schema.run.c.id).where(schema.run.c.id == bindparam("run")).with_for_update()
_GIVEN_BACK = delete(page_claim).where(
    page_claim.c.run_id == bindparam("run"),
    page_claim.c.entity == bindparam("of"),
    page_claim.c.number == bindparam("at"),
)


# ── The journal on SQLAlchemy: each method is one transaction ──

_CHUNK = 1000
_PARTS_AT_ONCE = 32
_TALLY = ("rows", "items", "refused", "expired", "bytes", "write_units", "different")
_NOTHING: dict[str, Any] = {**dict.fromkeys(_TALLY, 0), "done_at": None}


_SHARED = KeptRecords[bool]("shared_table", bool)
"""Tables that also contain items of other writers."""
_LOOKS = KeptRecords[ActivityCounts]("verified_look", ActivityCounts)
_INSTALLATIONS = KeptRecords[str]("run_capture", str)
"""By run, the installation of capture when it began, '' for none."""


class SqlJournal(InDatabase):
    """The record of all work. Every method is one transaction; thread-safe."""

    def __init__(self, where: str | URL | Engine, retry: Retry | None = None) -> None:
        super().__init__(Database(where, retry))

    @classmethod
    def in_memory(cls) -> SqlJournal:
        return cls("sqlite://")

    @property
    def name(self) -> str:
        return self.database.name

    def probe(self) -> None:
        """Try all rights in our tables without effect. Raises: an error that names the missing right."""
        with self.database.begin() as connection:
            for table in schema.metadata.sorted_tables:
                nothing = select(*table.columns).where(false())
                column = next(iter(table.columns))
                connection.execute(nothing)
                connection.execute(insert(table).from_select(list(table.columns.keys()), nothing))
                connection.execute(update(table).where(false()).values({column: column}))
                connection.execute(delete(table).where(false()))

    def unwritable(self) -> str:
        """Why the journal takes no writes now, such as a full disk, or ''.

        Only a committed write shows it. Free bytes do not show a quota, a process limit or a failing disk. A
        rolled back write stays in memory (SQLite) or is not flushed (PostgreSQL). No value changes.
        """
        try:
            with self.database.begin() as connection:
                connection.execute(update(schema.meta).values(version=schema.meta.c.version))
        except MigratorError as error:
            return str(error)
        return ""

    def close(self) -> None:
        self.database.close()

    # ── runs ──

    @reading
    def find_run(self, connection: Connection, identity: RunIdentity) -> Run | None:
        run = schema.run
        query = select(run).where(*_same(identity)).order_by(run.c.id.desc()).limit(1)
        row = connection.execute(query).first()
        return None if row is None else _run(row)

    @once_only
    def start_run(self, connection: Connection, identity: RunIdentity) -> Run:
        values = {**asdict(identity), "state": "running", "started_at": _now(connection)}
        runs = select(run.c.id).where(run.c.job == identity.job)
        connection.execute(delete(page_part).where(page_part.c.run_id.in_(runs)))
        key = connection.execute(insert(schema.run).values(values)).inserted_primary_key
        assert key is not None
        return Run(int(key[0]), identity, "running", str(values["started_at"]))

    @repeatable
    def resume_run(self, connection: Connection, run: Run) -> Run:
        change = update(schema.run).where(schema.run.c.id == run.id).values(state="running", ended_at=None)
        connection.execute(change)
        connection.execute(delete(page_claim).where(page_claim.c.run_id == run.id))
        # Rows that had one key are found again if they still have it: what they are in was not finished.
        twins = (finding.c.run_id == run.id, finding.c.kind == "collision", finding.c.item_key == "")
        connection.execute(delete(finding).where(*twins))
        return Run(run.id, run.identity, "running", run.started_at, resumed=True)

    @repeatable
    def end_run(self, connection: Connection, run: Run, state: RunState) -> None:
        change = update(schema.run).where(schema.run.c.id == run.id)
        connection.execute(change.values(state=state, ended_at=_now(connection)))
        if state == "done":
            connection.execute(delete(page_part).where(page_part.c.run_id == run.id))

    @reading
    def runs(self, connection: Connection, job: str) -> list[Run]:
        query = select(schema.run).where(schema.run.c.job == job).order_by(schema.run.c.id)
        return [_run(row) for row in connection.execute(query)]

    @reading
    def written_tables(self, connection: Connection, job: str) -> set[str]:
        """Ids of tables to which a backfill or a relay of this job has started to write."""
        run = schema.run
        writing = run.c.kind.in_(["backfill", "relay"])
        query = select(run.c.table_id).where(run.c.job == job, writing).distinct()
        return set(connection.execute(query).scalars())

    @repeatable
    def keep_shared(self, connection: Connection, table_id: str) -> None:
        _SHARED.add(connection, table_id, True)

    def is_shared(self, table_id: str) -> bool:
        return bool(_SHARED.read(self.database, table_id))

    @reading
    def writers(self, connection: Connection, table_id: str) -> dict[str, set[str]]:
        """Entities by job with pages that its backfill has planned for the table."""
        query = (
            select(run.c.job, plan.c.entity)
            .join(plan, plan.c.run_id == run.c.id)
            .where(run.c.table_id == table_id, run.c.kind == "backfill")
            .distinct()
        )
        by_job: dict[str, set[str]] = {}
        for job, entity in connection.execute(query):
            by_job.setdefault(job, set()).add(entity)
        return by_job

    # ── pages ──

    @reading
    def planned(self, connection: Connection, run: Run) -> set[str]:
        query = select(schema.plan.c.entity).where(schema.plan.c.run_id == run.id)
        return set(connection.execute(query).scalars())

    def plan_pages(self, run: Run, entity: str, pages: Iterable[Page]) -> None:
        # Read the bounds from the source before the transaction begins: a slow source must not block the journal.
        self._plan(run, entity, list(pages))

    @repeatable
    def _plan(self, connection: Connection, run: Run, entity: str, planned: Sequence[Page]) -> None:
        plan = schema.plan
        already_planned = select(plan.c.entity).where(plan.c.run_id == run.id, plan.c.entity == entity)
        if connection.execute(already_planned).first() is not None:
            return  # by a commit with a lost answer
        connection.execute(insert(schema.plan).values(run_id=run.id, entity=entity))
        waiting = iter(planned)
        while chunk := list(islice(waiting, _CHUNK)):
            rows = [{**_place(run, page), "after_key": page.after, "upto_key": page.upto} for page in chunk]
            connection.execute(insert(schema.page), rows)

    @reading
    def page_counts(self, connection: Connection, run: Run, entity: str) -> tuple[int, int]:
        page = schema.page
        query = select(func.count(page.c.done_at), func.count()).where(
            page.c.run_id == run.id, page.c.entity == entity
        )
        done, planned = connection.execute(query).one()
        return int(done), int(planned)

    @once_only
    def claim_pages(
        self,
        connection: Connection,
        run: Run,
        entity: str,
        who: str,
        n: int,
        lease_s: float,
        after: int = 0,
        upto: int | None = None,
    ) -> list[Page]:
        """Claim at most `n` of the next open pages for `lease_s` seconds.

        A page with an expired claim can be claimed again. One claimant never gets a page twice.
        """
        # One process at a time: two would find the same free pages.
        connection.execute(_OWN_RUN, {"run": run.id}).first()
        now = seconds(connection)
        bring_back(connection, page_claim.c.leased_until, now + lease_s, page_claim.c.run_id == run.id)
        pages = {"run": run.id, "of": entity, "behind": after, "own": who, "now": now, "n": n}
        bound = {} if upto is None else {"upto": upto}
        found = connection.execute(_free_pages(is_bounded=bool(bound)), pages | bound)
        claimed = [Page(entity, row[0], row[1], row[2]) for row in found]
        rows = [_place(run, page) | {"who": who, "leased_until": now + lease_s} for page in claimed]
        if rows:
            connection.execute(insert_or_replace(connection, page_claim), rows)
        return claimed

    @repeatable
    def renew_pages(self, connection: Connection, run: Run, who: str, lease_s: float) -> None:
        until, columns = seconds(connection) + lease_s, page_claim.c
        under_way = (columns.run_id == run.id, columns.who == who, columns.leased_until.is_not(None))
        connection.execute(update(page_claim).where(*under_way).values(leased_until=until))

    @repeatable
    def release_pages(self, connection: Connection, run: Run, who: str) -> None:
        """Release the claims of `who`, and of the processes it started, whose names begin with its own and a dot."""
        columns = page_claim.c
        named = or_(columns.who == who, columns.who.startswith(f"{who}.", autoescape=True))
        here = (columns.run_id == run.id, named, columns.leased_until.is_not(None))
        connection.execute(delete(page_claim).where(*here))

    @reading
    def claimed_by_others(self, connection: Connection, run: Run, who: str) -> int:
        """Number of pages that others are working on, or were when they were killed."""
        others = (page_claim.c.run_id == run.id, page_claim.c.who != who)
        query = select(func.count(page_claim.c.leased_until)).where(*others)
        return int(connection.execute(query).scalar_one())

    @reading
    def waiting_pages(self, connection: Connection, run: Run, entity: str, limit: int) -> list[int]:
        columns = schema.page.c
        here = (columns.run_id == run.id, columns.entity == entity, columns.done_at.is_(None))
        is_left = and_(page_claim.c.who.is_not(None), page_claim.c.leased_until.is_(None))
        query = select(columns.number).select_from(schema.page.outerjoin(page_claim, _CLAIM_OF_PAGE))
        query = query.where(*here, not_(is_left)).order_by(columns.number).limit(limit)
        return list(connection.execute(query).scalars())

    @reading
    def now_s(self, connection: Connection) -> float:
        return seconds(connection)

    @repeatable
    def leave_page(
        self, connection: Connection, run: Run, page: Page, who: str, new_findings: Sequence[Finding]
    ) -> None:
        """Leave the page open; it cannot be claimed until the run is resumed."""
        _add_findings(connection, run.id, new_findings)
        left = _place(run, page) | {"who": who, "leased_until": None}
        connection.execute(insert_or_replace(connection, page_claim), left)

    @repeatable
    def finish_page(
        self,
        connection: Connection,
        run: Run,
        page: Page,
        tally: Tally,
        new_findings: Sequence[Finding],
        *,
        again: bool = False,
        parts: Sequence[bytes] = (),
    ) -> None:
        """The checkpoint. If another process was first, its tally and its parts stay, unless `again`.

        Findings of equal text are stored once, so a repeated page adds none. `parts`: for the run's other
        processes, until the run is done.
        """
        table = schema.page
        values = {name: getattr(tally, name) for name in _TALLY}
        here = (table.c.run_id == run.id, table.c.entity == page.entity, table.c.number == page.number)
        is_open = () if again else (table.c.done_at.is_(None),)
        _add_findings(connection, run.id, new_findings)
        change = update(table).where(*here, *is_open).values(done_at=_now(connection), **values)
        is_kept = connection.execute(change).rowcount > 0
        if not is_kept and connection.execute(select(table.c.number).where(*here)).first() is None:
            where = f"run {run.id} of job {run.identity.job}"
            what = f"{where}: the journal has no page {page.number} of {page.entity}"
            raise StoppedError(
                f"{what}; was it replaced meanwhile? The same command begins where the journal stands"
            )
        if is_kept and parts:
            rows = [_place(run, page) | {"part": number, "data": part} for number, part in enumerate(parts)]
            connection.execute(insert_or_replace(connection, page_part), rows)
        # Any claimant's.
        connection.execute(_GIVEN_BACK, {"run": run.id, "of": page.entity, "at": page.number})

    def page_parts(self, run: Run, entity: str) -> Iterator[tuple[int, bytes]]:
        """Parts of finished pages with the page's number, in order, read in chunks."""
        # Often only the first ones are used.
        last, at_once = (-1, -1), 1
        while True:
            rows = self._parts(parts_query(run, entity, last, at_once))
            yield from ((number, data) for number, _, data in rows)
            if len(rows) < at_once:
                return
            last, at_once = rows[-1][:2], _PARTS_AT_ONCE

    @reading
    def _parts(self, connection: Connection, query: Select[Any]) -> list[tuple[int, int, bytes]]:
        return [(row[0], row[1], bytes(row[2])) for row in connection.execute(query)]

    @once_only
    def reopen_pages(self, connection: Connection, job: str, table_id: str, entities: Sequence[str]) -> int:
        """Reopen finished pages of these entities in this job's backfills; returns how many.

        A finished run becomes interrupted, so that the next backfill continues it.
        """
        of_job = (run.c.job == job, run.c.table_id == table_id, run.c.kind == "backfill")
        backfills = select(run.c.id).where(*of_job)
        conditions = (page.c.run_id.in_(backfills), page.c.entity.in_(entities), page.c.done_at.is_not(None))
        touched = set(connection.execute(select(page.c.run_id).where(*conditions).distinct()).scalars())
        count = connection.execute(update(page).where(*conditions).values(**_NOTHING)).rowcount
        finished = update(run).where(run.c.id.in_(touched), run.c.state == "done")
        connection.execute(finished.values(state="interrupted"))
        return int(count)

    @reading
    def tally(self, connection: Connection, run: Run, entity: str | None = None) -> Tally:
        page = schema.page
        query = select(*(func.coalesce(func.sum(page.c[name]), 0) for name in _TALLY)).where(
            page.c.run_id == run.id
        )
        if entity is not None:
            query = query.where(page.c.entity == entity)
        row = connection.execute(query).one()
        numbers = dict(zip(_TALLY, row, strict=True))
        units = float(numbers.pop("write_units"))
        return Tally(**{name: int(number) for name, number in numbers.items()}, write_units=units)

    # ── findings ──

    @repeatable
    def add_findings(self, connection: Connection, run: Run, new_findings: Sequence[Finding]) -> None:
        _add_findings(connection, run.id, new_findings)

    @reading
    def findings(self, connection: Connection, run: Run, limit: int | None = None) -> list[Finding]:
        here = finding.c.run_id == run.id
        query = select(*columns_of(finding)).where(here).order_by(finding.c.id).limit(limit)
        return [Finding(*row) for row in connection.execute(query)]

    @repeatable
    def drop_findings(
        self, connection: Connection, run: Run, kind: FindingKind, item_keys: Sequence[str]
    ) -> None:
        for chunk in chunks(item_keys):
            here = (finding.c.run_id == run.id, finding.c.kind == kind, finding.c.item_key.in_(chunk))
            connection.execute(delete(finding).where(*here))

    @reading
    def finding_counts(self, connection: Connection, run: Run) -> dict[str, int]:
        here = finding.c.run_id == run.id
        query = select(finding.c.kind, func.count()).where(here).group_by(finding.c.kind)
        return {str(kind): int(number) for kind, number in connection.execute(query)}

    @reading
    def finding_groups(self, connection: Connection, run: Run) -> list[FindingGroup]:
        table, here = _rows_of(run)
        by = [table.c[name] for name in _BY]
        query = select(*by, func.count()).where(here).group_by(*by)
        counted = [FindingGroup(*row[:3], count=row[3]) for row in connection.execute(query)]
        return sorted(counted, key=lambda group: (-group.count, group.kind, group.entity, group.attribute))

    @reading
    def findings_of(self, connection: Connection, run: Run, group: FindingGroup, limit: int) -> list[Finding]:
        table, here = _rows_of(run)
        of_group = (table.c[name] == getattr(group, name) for name in _BY)
        order = table.c.ticket if table is open_finding else table.c.id
        query = select(*columns_of(table)).where(here, *of_group).order_by(order).limit(limit)
        return [Finding(*row) for row in connection.execute(query)]

    # ── scans ──

    @reading
    def segment(self, connection: Connection, run: Run, number: int) -> SegmentState:
        table = schema.segment
        query = select(table.c.state).where(table.c.run_id == run.id, table.c.number == number)
        text = connection.execute(query).scalar()
        if text is None:
            return SegmentState()
        state = json.loads(text)
        return SegmentState(read_key(state["start"]), bool(state["done"]), state["tally"])

    @repeatable
    def save_segment(
        self,
        connection: Connection,
        run: Run,
        number: int,
        state: SegmentState,
        new_findings: Sequence[Finding],
    ) -> None:
        """The checkpoint. A finished segment stays so, even if a slower process saves it later."""
        table = schema.segment
        text = json.dumps({"start": write_key(state.start), "done": state.done, "tally": dict(state.tally)})
        here = (table.c.run_id == run.id, table.c.number == number)
        _add_findings(connection, run.id, new_findings)
        before = connection.execute(select(table.c.state).where(*here).with_for_update()).scalar()
        if before is None:
            connection.execute(insert(table).values(run_id=run.id, number=number, state=text))
        elif state.done or not json.loads(before)["done"]:
            connection.execute(update(table).where(*here).values(state=text))

    # ── claims ──

    @repeatable
    def claim(
        self, connection: Connection, table_id: str, claims: Sequence[tuple[bytes, str]]
    ) -> dict[bytes, str]:
        """Claim key digests for their source rows; returns the other owners of digests claimed before.

        The first of two claims in one call also wins, but the result by digest does not show which. Claims
        last until `release`.
        """
        others: dict[bytes, str] = {}
        number = _number_of(connection, table_id)
        # In the order of digests, so that two claimants never deadlock; equal digests stay in the caller's order.
        for chunk in chunks(sorted(claims, key=itemgetter(0))):
            stored = _stored(connection, number, chunk)
            others.update({digest: stored[digest] for digest, owner in chunk if stored[digest] != owner})
        return others

    @repeatable
    def release(self, connection: Connection, table_id: str, given_up: Sequence[tuple[bytes, str]]) -> None:
        """Release digests; one that another owner has claimed meanwhile stays."""
        here = claim.c.table_number == _number_of(connection, table_id)
        deletion = delete(claim).where(
            here, claim.c.digest == bindparam("freed"), claim.c.owner == bindparam("by")
        )
        for chunk in chunks(sorted(given_up, key=itemgetter(0))):
            connection.execute(deletion, [{"freed": digest, "by": owner} for digest, owner in chunk])

    # ── state at the start of a run ──

    @repeatable
    def keep_look(self, connection: Connection, run: Run, look: ActivityCounts) -> None:
        """Store change counts at the start of a run; a resumed one has read rows since."""
        counts = ActivityCounts(look.tables, look.whole, look.source, look.blind)
        _LOOKS.add(connection, run.identity.job, counts, str(run.id))

    def look_before(self, run: Run) -> ActivityCounts | None:
        return _LOOKS.read(self.database, run.identity.job, str(run.id))

    @reading
    def idle_s(self, connection: Connection, run: Run) -> float:
        query = select(func.max(page.c.done_at)).where(page.c.run_id == run.id)
        last_page = connection.execute(query).scalar()
        last_seen = max(run.started_at, run.ended_at or "", last_page or "")
        return seconds(connection) - datetime.fromisoformat(last_seen).timestamp()

    @repeatable
    def keep_installation(self, connection: Connection, run: Run, installation: str) -> None:
        """Store the installation of capture ('' for none) at the start of a run; a resumed one has read rows
        since.
        """
        _INSTALLATIONS.add(connection, run.identity.job, installation, str(run.id))

    def installation_of(self, run: Run) -> str | None:
        return _INSTALLATIONS.read(self.database, run.identity.job, str(run.id))

    @reading
    def unverified_run(self, connection: Connection, job: str, installation: str) -> int | None:
        """The last backfill into the job's table that began without this installation of capture and wrote
        pages, unless a full verify under the installation followed.
        """
        query = select(run.c.id, run.c.kind, run.c.table_id, run.c.state, run.c.scope)
        begun_with = _INSTALLATIONS.all(connection, job)
        ordered = connection.execute(query.where(run.c.job == job).order_by(run.c.id.desc()))
        rows = [candidate for candidate in ordered if str(candidate.id) in begun_with]
        backfills = [candidate for candidate in rows if candidate.kind == "backfill"]
        before = [
            candidate
            for candidate in backfills
            if candidate.table_id == backfills[0].table_id and begun_with[str(candidate.id)] != installation
        ]
        done = select(page.c.run_id).where(page.c.done_at.is_not(None)).distinct()
        of_runs = page.c.run_id.in_([candidate.id for candidate in before])
        written = set(connection.execute(done.where(of_runs)).scalars())
        last = next((candidate for candidate in before if candidate.id in written), None)
        if last is None:
            return None
        verified = [
            candidate.id
            for candidate in rows
            if (candidate.kind, candidate.state, candidate.scope) == ("verify", "done", "")
            and (candidate.table_id, begun_with[str(candidate.id)]) == (last.table_id, installation)
        ]
        return None if verified and verified[0] > last.id else int(last.id)

    @repeatable
    def count_as_done(
        self, connection: Connection, exported: Run, identity: RunIdentity, installation: str
    ) -> None:
        """Insert a finished backfill of that identity, with the pages and claims of an export, unless it exists."""
        there = select(run.c.id).where(
            run.c.table_id == identity.table_id, run.c.kind == identity.kind, run.c.job == identity.job
        )
        if connection.execute(there).first() is None:
            _count_as_done(connection, exported, identity, installation)


def _now(connection: Connection) -> str:
    """The time by the journal's clock: other hosts compare the age of runs."""
    return moment(seconds(connection))


def _same(identity: RunIdentity) -> list[Any]:
    return [schema.run.c[name] == value for name, value in asdict(identity).items()]


def _run(row: Row[Any]) -> Run:
    identity = RunIdentity(row.kind, row.job, row.table_id, row.revision, row.scope)
    return Run(row.id, identity, row.state, row.started_at, row.ended_at)


def _count_as_done(connection: Connection, exported: Run, identity: RunIdentity, installation: str) -> None:
    now = moment(seconds(connection))
    ended = {"state": "done", "started_at": exported.started_at, "ended_at": now}
    key = connection.execute(insert(run).values(**asdict(identity), **ended)).inserted_primary_key
    assert key is not None
    for table in (plan, page):
        copied = [literal(int(key[0])) if column.name == "run_id" else column for column in table.columns]
        rows = select(*copied).where(table.c.run_id == exported.id)
        connection.execute(insert(table).from_select(list(table.columns.keys()), rows))
    _INSTALLATIONS.put(connection, identity.job, installation, str(key[0]))
    _move_claims(connection, exported.identity.table_id, identity.table_id)


def _move_claims(connection: Connection, before: str, now: str) -> None:
    """Assign claims to the table, where forgetting a row looks for them."""
    number = _number_of(connection, now)
    connection.execute(delete(claim).where(claim.c.table_number == number))
    here = claim.c.table_number == _number_of(connection, before)
    connection.execute(update(claim).where(here).values(table_number=number))


def _number_of(connection: Connection, table_id: str) -> int:
    query = select(claimed_table.c.number).where(claimed_table.c.table_id == table_id)
    while (number := connection.execute(query).scalar()) is None:
        connection.execute(insert_or_ignore(connection, claimed_table), {"table_id": table_id})
    return int(number)


def _stored(connection: Connection, number: int, chunk: Sequence[tuple[bytes, str]]) -> dict[bytes, str]:
    stored: dict[bytes, str] = {}
    # On PostgreSQL a claim may be released between the two statements; it is then free for the next try.
    while missing := [pair for pair in chunk if pair[0] not in stored]:
        rows = [{"table_number": number, "digest": digest, "owner": owner} for digest, owner in missing]
        connection.execute(insert_or_ignore(connection, claim), rows)
        stored.update(_owners(connection, number, [digest for digest, _ in missing]))
    return stored


def _owners(connection: Connection, number: int, digests: list[bytes]) -> dict[bytes, str]:
    query = select(claim.c.digest, claim.c.owner).where(
        claim.c.table_number == number, claim.c.digest.in_(digests)
    )
    return {bytes(digest): owner for digest, owner in connection.execute(query)}
