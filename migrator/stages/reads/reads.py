"""Reads of a service: answers by SQL or by the table, by the pattern's phase; and page by page."""

from __future__ import annotations

import heapq
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice, repeat
from threading import Lock
from typing import Any, TypeVar

from msgspec import Struct

from migrator.mapping.model.edges import ItemStore, Questions, TableState
from migrator.mapping.model.evidence import (
    OFF,
    ROUTES,
    PatternPhase,
    Phases,
    Side,
    State,
    answering,
    share_of,
)
from migrator.mapping.model.mapping import Pattern
from migrator.mapping.model.results import Rows
from migrator.mapping.patterns.answers import Answer, Records, TooManyError, answer_of, handed, records
from migrator.mapping.patterns.diff import as_text
from migrator.mapping.patterns.params import checked_params, texts_of
from migrator.mapping.patterns.requests import Cursor, Start, digest_of, opened, row_digest, signed
from migrator.runtime.errors import MigratorError, SettingsError, TargetError, did_you_mean, reason_of
from migrator.runtime.logs import get_logger
from migrator.runtime.system import Ticker, tell_of_forks
from migrator.runtime.values import replace
from migrator.settings.job import ReadSettings
from migrator.stages.core.ownership import OLDER_ADVICE, OlderError
from migrator.stages.patterns.question import Partition, Question, order_of, side_by_side
from migrator.stages.reads.backends import Backends, Bounds, ShadowedCall, SideError
from migrator.stages.reads.metrics import ReadMetrics
from migrator.stages.reads.shadow import AnsweredCall, Shadow

LARGEST_PAGE = 1_000
SLACK = 1_000
"""Rows that may be inserted before the last one given, with which it is still found again."""
DEEPEST = 100_000
"""Rows that SQL gives page by page at most: each page reads all those before it."""


class PagePosition(Struct, frozen=True):
    """Start of a page: `given` items or rows came before it; for the other fields see Cursor."""

    given: int = 0
    starts: tuple[Start, ...] = ()
    row: str = ""


class PageRows(Struct, frozen=True):
    rows: Rows
    next: PagePosition | None


def refuse_unpaged(pattern: Pattern) -> None:
    taken = {"cursor", "size"} & {param.name for param in pattern.params}
    why = ""
    if pattern.operation != "query" or pattern.near is not None:
        why = "it is not a Query in the order of its keys"
    elif pattern.parts[0].name:
        why = "its answer has parts"
    elif taken:
        why = f"its own parameter '{min(taken)}' has the name of read_page's"
    if why:
        raise SettingsError(f"{pattern.name} cannot be read page by page: {why}; use read")


# ── the table ──


def table_page(
    question: Question, values: Mapping[str, Any], store: ItemStore, place: PagePosition, size: int
) -> PageRows:
    request = question.requests.of(values)
    size = _within(size, request.limit, place)
    starts = place.starts or (None,) * len(request.sent)
    # One item more than wanted shows whether there is another page.
    begun = [
        Partition(store, request, query, size + 1, time.time(), begins)
        for query, start in zip(request.sent, starts, strict=True)
        for begins in [None if start is None else store.start_after(query, start)]
    ]
    side_by_side(Partition.read_page, begun)
    streams = [zip(repeat(number), partition.items()) for number, partition in enumerate(begun)]
    order = order_of(request)
    merged = heapq.merge(*streams, key=lambda numbered: order(numbered[1]), reverse=request.descending)
    taken = list(islice(merged, size))
    has_more = next(merged, None) is not None
    rows = answer_of(question.mapping, question.pattern, [item for _, item in taken])[""]
    given = place.given + len(taken)
    if not has_more or (request.limit is not None and given >= request.limit):
        return PageRows(rows, None)
    names = _names(question)
    last = {number: {name: item[name] for name in names} for number, item in taken}
    ends = tuple(last.get(number, start) for number, start in enumerate(starts))
    return PageRows(rows, PagePosition(given, ends))


def _names(question: Question) -> tuple[str, ...]:
    table = question.mapping.table
    index = table.asked(question.pattern.index)
    assert index is not None
    return tuple(dict.fromkeys(attribute.name for attribute in (*table.key, *index.attributes)))


def _within(size: int, limit: int | None, place: PagePosition) -> int:
    return size if limit is None else min(size, max(limit - place.given, 0))


# ── SQL ──


def sql_page(
    question: Question, values: Mapping[str, Any], source: Questions, place: PagePosition, size: int
) -> PageRows:
    """One page of SQL's answer. The statement has no pages: each call reads it up to the page's end.

    The page begins after the last row given, at its current place; if that row is gone, after as many rows.
    Raises: SettingsError past DEEPEST rows; the errors of the source.
    """
    if place.given + size > DEEPEST:
        raise SettingsError(
            f"{question.pattern.name}: SQL gives {DEEPEST:,} rows page by page; use a narrower range"
        )
    # Before the first page nothing can have been inserted.
    wanted = place.given + size + (SLACK if place.given else 0)
    rows = question.of_sql(values, source, at_most=wanted).rows[""]
    begins = _behind(rows, place)
    page = rows[begins : begins + size]
    if not page or len(rows) <= begins + size:
        return PageRows(page, None)
    return PageRows(page, PagePosition(place.given + len(page), row=row_digest(as_text(page[-1]))))


def _behind(rows: Sequence[tuple[Any, ...]], place: PagePosition) -> int:
    if not place.given:
        return 0
    equal_rows = [number for number, row in enumerate(rows) if row_digest(as_text(row)) == place.row]
    # Of several equal rows the one nearest to the former position.
    return min(equal_rows, key=lambda number: abs(number + 1 - place.given), default=place.given - 1) + 1


LOG_S = 60.0
_AGAIN_S = 60.0
_GOODBYE_S = 5.0
_log = get_logger("reads")


def refuse_missing(
    states: Mapping[str, State],
    indexes: Mapping[str, str | None],
    table: str,
    ask: Callable[[], TableState | None],
) -> None:
    """`indexes`: by pattern. Raises: TargetError if a pattern's table or index is missing."""
    asking_table = {name: state for name, state in states.items() if state.phase != "off"}
    if not asking_table:
        return
    try:
        state = ask()
    except MigratorError as error:
        # DynamoDB may be away, or the user not allowed to describe it: no reason not to answer from SQL.
        _log.warning("table_cannot_be_described", reason=str(error))
        return
    if state is None:
        raise TargetError(
            f"table {table} not found, and {min(asking_table)} is in {asking_table[min(asking_table)]}"
        )
    for name, phase in asking_table.items():
        index = indexes[name]
        if index is not None and f"index {index}" in state.parts:
            what = f"{name} is in {phase}, and table {table} has no index {index} like the mapping's"
            raise TargetError(f"{what}; see `migrator table check`, or move the pattern to off first")


def refuse_other_table(
    table: str,
    ask: Callable[[], TableState | None],
    filled: Callable[[], Collection[str]],
    phases: Iterable[PatternPhase],
) -> None:
    """`ask`: the current state of the table with that name. `filled`: ids of those the job has written to.

    Raises: OlderError if DynamoDB answers a pattern and the table was re-created or restored since. While
    table or journal is unreachable, answers continue.
    """
    if all(ROUTES[phase.state.phase].in_share == "sql" for phase in phases):
        return
    try:
        state, known = ask(), filled()
    except MigratorError:
        return
    if state is not None and known and state.table_id not in known:
        what = f"table {table} is not the one that was filled: it was created again, or restored"
        raise OlderError(f"{what}; its answers would lack items; {OLDER_ADVICE}")


class PhaseCache:
    """A context manager. Callers never wait for the journal.

    `instance`: gives this instance's id, which confirms the versions it acts by.
    A forked child keeps its parent's phases and gets its own thread.
    """

    def __init__(self, phases: Phases, instance: Callable[[], str], every_s: float) -> None:
        self.phases = phases
        self.instance = instance
        self.every_s = every_s
        self._current: Mapping[str, PatternPhase] = {}
        self._faults: list[str] = []
        self._confirmed: tuple[str, Mapping[str, int]] = ("", {})
        self._confirmed_at = float("-inf")
        self._logged_at = float("-inf")
        self._held = False
        self._asking = Lock()
        self._ticker = Ticker("phases", self._run, self._failed, lambda: self.every_s)

    def state(self, pattern: str) -> State:
        """The pattern's current phase; `off` if it never moved."""
        phase = self._current.get(pattern)
        return OFF if phase is None else phase.state

    def known(self) -> Mapping[str, PatternPhase]:
        return self._current

    def versions(self) -> dict[str, int]:
        return {name: phase.version for name, phase in self._current.items()}

    def renew(self) -> None:
        """Read the journal now. A pattern whose phase was edited by hand keeps its former one.

        Raises: StoppedError, SettingsError if the journal is unreachable.
        """
        phases = dict(self.phases.all())
        self._faults = [phase.fault for phase in phases.values() if phase.fault]
        for name in [name for name, phase in phases.items() if phase.fault]:
            del phases[name]
            if name in self._current:
                phases[name] = self._current[name]
        versions = {name: phase.version for name, phase in phases.items()}
        # From here on calls act by them; only then may the journal record it.
        self._current = phases
        seen = (self.instance(), versions)
        # Repeated at intervals: the journal may have dropped an instance that was silent for long, and its
        # confirmations.
        stale = time.monotonic() - self._confirmed_at >= _AGAIN_S
        if seen[0] and (stale or seen != self._confirmed):
            self.phases.confirm(*seen)
            self._confirmed, self._confirmed_at = seen, time.monotonic()

    def __enter__(self) -> PhaseCache:
        """Raises: as `renew`; SettingsError if a phase was edited by hand: the answering side is then unknown."""
        self.renew()
        if self._faults:
            raise SettingsError("; ".join(self._faults))
        tell_of_forks(self)
        self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ticker.stop(_GOODBYE_S)

    # ── forks ──

    def before_fork(self) -> None:
        """A fork during a transaction would leave the child the thread's locks."""
        self._held = self._asking.acquire(timeout=_GOODBYE_S)

    def after_fork(self, *, in_child: bool) -> None:
        if not in_child and self._held:
            self._asking.release()
        elif in_child and self._ticker.runs:
            self._confirmed = ("", {})
            self._asking, self._ticker = Lock(), self._ticker.again()
            self._ticker.start()

    # ── the thread ──

    def _run(self) -> None:
        with self._asking:
            self.renew()
        if self._faults:
            self._log("; ".join(self._faults))

    def _failed(self, error: Exception) -> None:
        self._log(reason_of(error))

    def _log(self, reason: str) -> None:
        if time.monotonic() - self._logged_at >= LOG_S:
            self._logged_at = time.monotonic()
            with suppress(OSError, ValueError):
                _log.warning("phases_cannot_be_read", kept="the last known ones", reason=reason)


AnyPattern = TypeVar("AnyPattern")
"""The pattern, or the question that it makes."""

# ──
# Calls of access patterns in a service: answered by the side that the phase names, shadowed by the other
# one.


class PatternCall(Struct, frozen=True):
    """`values`: parameters as from `checked_params`.
    `shadowed`: its shadow's call; None without one.
    `compares`: the answer as its shadow compares it, a copy if the caller could change it.
    """

    pattern: Pattern
    values: Mapping[str, Any]
    shadowed: Callable[[], ShadowedCall] | None
    compares: Callable[[Any], Any] = lambda answer: answer


@dataclass(frozen=True)
class Reads:
    """`need_table`: raises if the table is not the one that was filled."""

    phases: PhaseCache
    shadow: Shadow
    ledger: ReadMetrics
    need_table: Callable[[], object]

    def side_of(self, call: PatternCall) -> Side:
        """The side that answers, fixed for the same parameters until the pattern moves."""
        state = self.phases.state(call.pattern.name)
        if state.phase != "ramp":
            return ROUTES[state.phase].answers
        texts = texts_of(call.pattern, call.values)
        return answering(state, share_of(call.pattern.name, texts), texts)

    def answer(self, call: PatternCall, side: Side, ask: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        try:
            self._need(side)
            answer = ask()
        except Exception:
            self.ledger.failed(call.pattern.name, side)
            raise
        self._answered(call, side, answer, began)
        return answer

    async def answer_async(self, call: PatternCall, side: Side, ask: Callable[[], Awaitable[Any]]) -> Any:
        began = time.perf_counter()
        try:
            self._need(side)
            answer = await ask()
        except Exception:
            self.ledger.failed(call.pattern.name, side)
            raise
        self._answered(call, side, answer, began)
        return answer

    def _need(self, side: Side) -> None:
        if side == "table":
            self.need_table()

    def _answered(self, call: PatternCall, side: Side, answer: Any, began: float) -> None:
        name = call.pattern.name
        self.ledger.answered(name, side, (time.perf_counter() - began) * 1000)
        shadowed = call.shadowed
        if shadowed is None or not ROUTES[self.phases.state(name).phase].compares:
            return
        self.shadow.offer(
            name, lambda: AnsweredCall(shadowed(), side, _comparable(call, side, answer), call.values)
        )


def _comparable(call: PatternCall, side: Side, answer: Any) -> Any:
    try:
        return call.compares(answer)
    except TooManyError:
        raise
    except MigratorError as error:
        raise SideError(side, f"{call.pattern.name}: {error}") from None


# ── Access patterns that the mapping itself answers for a service: at once, or page by page ──


@dataclass(frozen=True)
class Page:
    """`items`: as from `read`, with their `origin`. `next`: cursor of the next page, None at the end."""

    items: Records
    next: str | None = None


@dataclass(frozen=True)
class MappedReads:
    """`edges`: of callers; `shadow_edges`: of shadows."""

    reads: Reads
    questions: Mapping[str, Question]
    edges: Backends
    shadow_edges: Backends
    settings: ReadSettings
    revision: str

    def read(self, name: str, given: Mapping[str, Any]) -> Answer:
        """Answer in the form of `handed`.

        Raises: SettingsError for a pattern or parameters outside the mapping; the answering side's errors.
        """
        question = question_named(self.questions, name)
        values = checked_params(question.pattern, given)
        question.refuse_unfit(values)

        def ask(side: Side, edges: Backends) -> Mapping[str, Rows]:
            return question.answer(side, values, edges.source, edges.store)

        def shadow(side: Side, bounds: Bounds) -> Mapping[str, Rows]:
            return ask(side, self.shadow_edges.within(bounds))

        shadowed = partial(ShadowedCall, question.pattern, shadow, question.compared)
        call = PatternCall(question.pattern, values, shadowed, self._compares)
        side = self.reads.side_of(call)
        parts = self.reads.answer(call, side, partial(ask, side, self.edges))
        return handed(question.pattern, parts, side, question.kinds)

    def _compares(self, parts: Mapping[str, Rows]) -> Mapping[str, Rows]:
        """Raises: TooManyError for more rows than are compared, which the other side would be blamed for."""
        most = self.settings.shadow.max_rows
        if sum(map(len, parts.values())) > most:
            raise TooManyError(f"more than {most:,} rows; they are not compared")
        return parts

    def read_page(self, name: str, given: Mapping[str, Any], cursor: str | None, size: int) -> Page:
        """One page of the answer. A cursor continues at the side that began, regardless of the current phase.

        Raises: SettingsError as `read`, and for a cursor of another question.
        """
        question = question_named(self.questions, name)
        refuse_unpaged(question.pattern)
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= LARGEST_PAGE:
            raise SettingsError(f"{name}: size is a whole number from 1 to {LARGEST_PAGE:,}")
        values = checked_params(question.pattern, given)
        question.refuse_unfit(values)
        key = self._key(name)

        def shadow(side: Side, bounds: Bounds) -> Rows:
            # One row more than a page shows that there is another page.
            edges = self.shadow_edges.within(Bounds(bounds.at_most + 1, bounds.late))
            return self._page(question, values, size, side, edges, PagePosition()).rows

        shadowed = lambda: ShadowedCall(  # noqa: E731
            question.pattern, shadow, lambda items, rows: question.compared({"": items}, {"": rows})
        )
        # Pages in no certain order, and later ones, may be cut differently on the two sides.
        compared = cursor is None and question.pattern.order == "exact"
        call = PatternCall(question.pattern, values, shadowed if compared else None)
        fresh = Cursor(
            name, digest_of(texts_of(question.pattern, values)), self.revision, "sql", time.time(), 0
        )
        if cursor is None:
            begun = replace(fresh, side=self.reads.side_of(call))
        elif fault := self._fault(begun := opened(cursor, key), fresh):
            raise SettingsError(f"{name}: {fault}; start again from the first page")
        position = PagePosition(begun.given, begun.starts, begun.row)
        ask = partial(self._page, question, values, size, begun.side, self.edges, position)
        compares = lambda rows: self._compares({"": rows.rows})[""]  # noqa: E731
        page_rows = self.reads.answer(replace(call, compares=compares), begun.side, ask)
        items = records(question.pattern.parts[0], page_rows.rows, begun.side, question.kinds[""])
        if page_rows.next is None:
            return Page(items)
        after = page_rows.next
        there = replace(begun, given=after.given, starts=after.starts, row=after.row)
        return Page(items, signed(there, key))

    def _page(
        self,
        question: Question,
        values: Mapping[str, Any],
        size: int,
        side: Side,
        edges: Backends,
        position: PagePosition,
    ) -> PageRows:
        if side == "table":
            return table_page(question, values, edges.store, position, size)
        return sql_page(question, values, edges.source, position, size)

    def _key(self, name: str) -> str:
        if self.settings.cursor_key is None:
            what = f"{name} cannot be read page by page: cursors are signed, and no key is set"
            raise SettingsError(
                f"{what}; write reads: {{cursor_key: '${{CURSOR_KEY}}'}} in the job, the same for all processes"
            )
        return self.settings.cursor_key

    def _fault(self, cursor: Cursor, fresh: Cursor) -> str:
        if cursor.pattern != fresh.pattern:
            return f"the cursor is of another access pattern, {cursor.pattern}"
        if cursor.asked != fresh.asked:
            return "the cursor is of other parameters"
        if cursor.revision != fresh.revision:
            return "the cursor is of another revision of the mapping"
        if fresh.begun_at - cursor.begun_at > self.settings.cursor_life_s:
            return "the cursor is too old (reads.cursor_life_s)"
        phase = self.reads.phases.state(fresh.pattern).phase
        ended: dict[Side, str] = {"table": "off", "sql": "complete"}
        if phase == ended[cursor.side]:
            return f"the cursor is of a side that no longer answers: the pattern is {phase}"
        return ""


def question_named(questions: Mapping[str, AnyPattern], name: str) -> AnyPattern:
    if not isinstance(name, str):
        raise SettingsError(f"an access pattern is named by a text; this {type(name).__name__} is none")
    question = questions.get(name)
    if question is None:
        raise SettingsError(f"the mapping has no access pattern '{name}'{did_you_mean(name, questions)}")
    return question
