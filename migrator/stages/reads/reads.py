"""Reads of a service: answered by the side that the phase names, compared with the other as a shadow."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

from msgspec import Struct

from migrator.mapping.model.edges import ItemStore, Questions
from migrator.mapping.model.evidence import ROUTES, Side, answering, share_of
from migrator.mapping.model.mapping import Pattern
from migrator.mapping.model.results import PartAnswer, Rows
from migrator.mapping.patterns.cursors import Cursor, digest_of, opened, signed
from migrator.mapping.patterns.handed import Answer, Records
from migrator.mapping.patterns.params import checked_params, texts_of
from migrator.mapping.patterns.results import TooManyError, handed, records
from migrator.runtime.errors import MigratorError, SettingsError, did_you_mean
from migrator.runtime.values import replace
from migrator.settings.job import ReadSettings
from migrator.stages.patterns.pages import LARGEST_PAGE, PageRows, Place, refuse_unpaged, sql_page, table_page
from migrator.stages.patterns.question import Question
from migrator.stages.reads.backends import (
    Backends,
    BoundedSource,
    BoundedStore,
    Bounds,
    MappedCall,
    ShadowedCall,
    SideError,
)
from migrator.stages.reads.metrics import ReadMetrics
from migrator.stages.reads.phases import PhaseCache
from migrator.stages.reads.shadow import AnsweredCall, Shadow

AnyQuestion = TypeVar("AnyQuestion", bound=Question)

# ──
# Calls of access patterns in a service: answered by the side that the phase names, shadowed by the other
# one.


class Call(Struct, frozen=True):
    """One call of a pattern. `values`: its parameters as `checked_params` gives them. `shadowed`: what its shadow asks;
    None where there is none. `compares`: the answer as its shadow compares it, a copy where the caller could change it."""

    pattern: Pattern
    values: Mapping[str, Any]
    shadowed: Callable[[], ShadowedCall] | None
    compares: Callable[[Any], Any] = lambda answer: answer


@dataclass(frozen=True)
class Reads:
    """`need_table`: raises if the table is not the one that was filled. `clock`: seconds that only grow, for what an answer
    took."""

    phases: PhaseCache
    shadow: Shadow
    ledger: ReadMetrics
    need_table: Callable[[], object]
    clock: Callable[[], float] = time.perf_counter

    def side_of(self, call: Call) -> Side:
        """The side that answers: always the same for the same parameters while the pattern is not moved."""
        state = self.phases.state(call.pattern.name)
        if state.phase != "ramp":
            return ROUTES[state.phase].answers
        texts = texts_of(call.pattern, call.values)
        return answering(state, share_of(call.pattern.name, texts), texts)

    def answer(self, call: Call, side: Side, ask: Callable[[], Any]) -> Any:
        """What `ask` gives, timed and counted. Raises: what it raises."""
        began = self.clock()
        try:
            self._need(side)
            answer = ask()
        except Exception:
            self.ledger.failed(call.pattern.name, side)
            raise
        self._answered(call, side, answer, began)
        return answer

    async def answer_async(self, call: Call, side: Side, ask: Callable[[], Awaitable[Any]]) -> Any:
        """The same for a side that is awaited."""
        began = self.clock()
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

    def _answered(self, call: Call, side: Side, answer: Any, began: float) -> None:
        name = call.pattern.name
        self.ledger.answered(name, side, (self.clock() - began) * 1000)
        shadowed = call.shadowed
        if shadowed is None or not ROUTES[self.phases.state(name).phase].compares:
            return
        self.shadow.offer(
            name, lambda: AnsweredCall(shadowed(), side, _comparable(call, side, answer), call.values)
        )


def _comparable(call: Call, side: Side, answer: Any) -> Any:
    """Raises: TooManyError; SideError where the answer has no form that can be compared."""
    try:
        return call.compares(answer)
    except TooManyError:
        raise
    except MigratorError as error:
        raise SideError(side, f"{call.pattern.name}: {error}") from None


# ── Access patterns that the mapping itself answers for a service: at once, or page by page ──


@dataclass(frozen=True)
class Page:
    """`items`: as `read` gives them, with their `origin`. `next`: the cursor of the next page, None where there is none."""

    items: Records
    next: str | None = None


@dataclass(frozen=True)
class MappedReads:
    """`edges`: of callers; `shadow_edges`: of shadows, for which no caller waits. `revision`: of the mapping. `clock`:
    seconds since 1970."""

    reads: Reads
    questions: Mapping[str, Question]
    edges: Backends
    shadow_edges: Backends
    settings: ReadSettings
    revision: str
    clock: Callable[[], float] = time.time

    def read(self, name: str, given: Mapping[str, Any]) -> Answer:
        """The answer as `handed` gives it.

        Raises: SettingsError for a pattern or parameters that are not the mapping's; what the side that answers raises.
        """
        question = question_named(self.questions, name)
        values = checked_params(question.pattern, given)
        question.refuse_unfit(values)
        shadowed = lambda: MappedCall(question, values, self.shadow_edges)  # noqa: E731
        call = Call(question.pattern, values, shadowed, self._compares)
        side = self.reads.side_of(call)
        edges = self.edges
        ask = partial(question.answer, side, values, edges.source, edges.store)
        parts = self.reads.answer(call, side, ask)
        return handed(question.pattern, parts, side, question.kinds)

    def _compares(self, parts: Mapping[str, Rows]) -> Mapping[str, Rows]:
        """Raises: TooManyError for an answer of more rows than are compared, which the other side would be blamed for."""
        most = self.settings.shadow.max_rows
        if sum(map(len, parts.values())) > most:
            raise TooManyError(f"more than {most:,} rows; they are not compared")
        return parts

    def read_page(self, name: str, given: Mapping[str, Any], cursor: str | None, size: int) -> Page:
        """One page of the answer. A cursor goes on at the side that began, whatever the phase is by now.

        Raises: SettingsError as `read` does, and for a cursor that is not this question's.
        """
        question = question_named(self.questions, name)
        refuse_unpaged(question.pattern)
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= LARGEST_PAGE:
            raise SettingsError(f"{name}: size is a whole number from 1 to {LARGEST_PAGE:,}")
        values = checked_params(question.pattern, given)
        question.refuse_unfit(values)
        key = self._key(name)
        page = self._page_call(question, values, size)
        # Of pages in no certain order, and of later ones, the two sides need not agree where they are cut.
        compared = cursor is None and question.pattern.order == "exact"
        call = Call(question.pattern, values, (lambda: page) if compared else None)
        fresh = Cursor(
            name, digest_of(texts_of(question.pattern, values)), self.revision, "sql", self.clock(), 0
        )
        begun = (
            replace(fresh, side=self.reads.side_of(call))
            if cursor is None
            else self._opened(cursor, key, fresh)
        )
        position = Place(begun.given, begun.starts, begun.row)
        ask = lambda: replace(page, edges=self.edges).page(begun.side, self.edges, position)  # noqa: E731
        compares = lambda rows: self._compares({"": rows.rows})[""]  # noqa: E731
        page_rows = self.reads.answer(replace(call, compares=compares), begun.side, ask)
        items = records(question.pattern.parts[0], page_rows.rows, begun.side, question.kinds[""])
        if page_rows.next is None:
            return Page(items)
        there = replace(
            begun, given=page_rows.next.given, starts=page_rows.next.starts, row=page_rows.next.row
        )
        return Page(items, signed(there, key))

    def _page_call(self, question: Question, values: Mapping[str, Any], size: int) -> PageCall:
        return PageCall(question, values, self.shadow_edges, size)

    def _key(self, name: str) -> str:
        if self.settings.cursor_key is None:
            what = f"{name} cannot be read page by page: cursors are signed, and there is no key"
            raise SettingsError(
                f"{what}; write reads: {{cursor_key: '${{CURSOR_KEY}}'}} in the job, the same for all processes"
            )
        return self.settings.cursor_key

    def _opened(self, text: str, key: str, fresh: Cursor) -> Cursor:
        cursor = opened(text, key)
        fault = self._fault(cursor, fresh)
        if fault:
            raise SettingsError(f"{fresh.pattern}: {fault}; begin the paging anew")
        return cursor

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
            return f"the cursor is of a side that answers no more: the pattern is {phase}"
        return ""


@dataclass(frozen=True)
class PageCall:
    """A first page as its shadow asks it."""

    question: Question
    values: Mapping[str, Any]
    edges: Backends
    size: int

    @property
    def pattern(self) -> Pattern:
        return self.question.pattern

    def page(self, side: Side, edges: Backends, position: Place) -> PageRows:
        if side == "table":
            return table_page(self.question, self.values, edges.store, position, self.size)
        return sql_page(self.question, self.values, edges.source, position, self.size)

    def ask(self, side: Side, bounds: Bounds) -> Any:
        # One row more than a page shows that there is another page.
        bounds = Bounds(bounds.at_most + 1, bounds.late)
        source = cast("Questions", BoundedSource(self.edges.source, bounds))
        store = cast("ItemStore", BoundedStore(self.edges.store, bounds))
        return self.page(side, Backends(source, store), Place()).rows

    def compared(self, items: Any, rows: Any) -> tuple[PartAnswer, ...]:
        return self.question.compared({"": items}, {"": rows})


def question_named(questions: Mapping[str, AnyQuestion], name: str) -> AnyQuestion:
    """Raises: SettingsError for a pattern that the mapping has not."""
    if not isinstance(name, str):
        raise SettingsError(f"an access pattern is named by a text; this {type(name).__name__} is none")
    question = questions.get(name)
    if question is None:
        raise SettingsError(f"the mapping has no access pattern '{name}'{did_you_mean(name, questions)}")
    return question
