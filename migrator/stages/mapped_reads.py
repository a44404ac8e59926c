"""Access patterns that the mapping itself answers for a service: at once, or page by page."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from migrator.errors import SettingsError
from migrator.mapping.cursors import Cursor, digest_of, opened, signed
from migrator.mapping.document import did_you_mean
from migrator.mapping.handed import Answer, TooManyError, handed, records
from migrator.mapping.params import checked_params, texts_of
from migrator.model import Pattern, Value
from migrator.phase import Side
from migrator.ports import ItemStore, Questions
from migrator.read_settings import ReadSettings
from migrator.results import PartAnswer, Rows
from migrator.stages.bounded import BoundedSource, BoundedStore, Bounds
from migrator.stages.paging import LARGEST_PAGE, PageRows, Place, refuse_unpaged, sql_page, table_page
from migrator.stages.query import Question
from migrator.stages.reads import Call, Reads
from migrator.stages.sides import Edges, MappedCall


@dataclass(frozen=True)
class Page:
    """`items`: as `read` gives them. `next`: the cursor of the next page, None where there is none."""

    items: list[dict[str, Value]]
    next: str | None = None


@dataclass(frozen=True)
class MappedReads:
    """`edges`: of callers; `shadow_edges`: of nobody who waits. `revision`: of the mapping. `clock`: seconds since 1970."""

    reads: Reads
    questions: Mapping[str, Question]
    edges: Edges
    shadow_edges: Edges
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
        return handed(question.pattern, parts)

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
        page = _PageCall(question, values, self.shadow_edges, size)
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
        place = Place(begun.given, begun.starts, begun.row)
        ask = lambda: replace(page, edges=self.edges).page(begun.side, self.edges, place)  # noqa: E731
        compares = lambda one: self._compares({"": one.rows})[""]  # noqa: E731
        found = self.reads.answer(replace(call, compares=compares), begun.side, ask)
        items = records(question.pattern.parts[0], found.rows)
        if found.next is None:
            return Page(items)
        there = replace(begun, given=found.next.given, starts=found.next.starts, row=found.next.row)
        return Page(items, signed(there, key))

    def _key(self, name: str) -> str:
        if self.settings.cursor_key is None:
            what = f"{name} cannot be read page by page: cursors are signed, and there is no key"
            raise SettingsError(
                f"{what}; write reads: {{cursor_key: '${{CURSOR_KEY}}'}} in the job, the same for all processes"
            )
        return self.settings.cursor_key

    def _opened(self, text: str, key: str, fresh: Cursor) -> Cursor:
        found = opened(text, key)
        fault = self._fault(found, fresh)
        if fault:
            raise SettingsError(f"{fresh.pattern}: {fault}; begin the paging anew")
        return found

    def _fault(self, found: Cursor, fresh: Cursor) -> str:
        if found.pattern != fresh.pattern:
            return f"the cursor is of another access pattern, {found.pattern}"
        if found.asked != fresh.asked:
            return "the cursor is of other parameters"
        if found.revision != fresh.revision:
            return "the cursor is of another revision of the mapping"
        if fresh.begun_at - found.begun_at > self.settings.cursor_life_s:
            return "the cursor is too old (reads.cursor_life_s)"
        phase = self.reads.phases.state(fresh.pattern).phase
        ended: dict[Side, str] = {"table": "off", "sql": "complete"}
        if phase == ended[found.side]:
            return f"the cursor is of a side that answers no more: the pattern is {phase}"
        return ""


@dataclass(frozen=True)
class _PageCall:
    """A first page as its shadow asks it."""

    question: Question
    values: Mapping[str, Any]
    edges: Edges
    size: int

    @property
    def pattern(self) -> Pattern:
        return self.question.pattern

    def page(self, side: Side, edges: Edges, place: Place) -> PageRows:
        if side == "table":
            return table_page(self.question, self.values, edges.store, place, self.size)
        return sql_page(self.question, self.values, edges.source, place, self.size)

    def ask(self, side: Side, bounds: Bounds) -> Any:
        # One more than a page has says that there is another one.
        bounds = Bounds(bounds.at_most + 1, bounds.late)
        source = cast("Questions", BoundedSource(self.edges.source, bounds))
        store = cast("ItemStore", BoundedStore(self.edges.store, bounds))
        return self.page(side, Edges(source, store), Place()).rows

    def compared(self, items: Any, rows: Any) -> tuple[PartAnswer, ...]:
        return self.question.compared({"": items}, {"": rows})


def question_named(questions: Mapping[str, Question], name: str) -> Question:
    """Raises: SettingsError for a pattern that the mapping has not."""
    if not isinstance(name, str):
        raise SettingsError(f"an access pattern is named by a text; this {type(name).__name__} is none")
    found = questions.get(name)
    if found is None:
        raise SettingsError(f"the mapping has no access pattern '{name}'{did_you_mean(name, questions)}")
    return found
