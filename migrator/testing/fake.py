"""A migration for a service's tests, which set phases and answers, and inspect the calls."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

from msgspec import Struct

from migrator.api import DualWrite, Migration, refuse_options
from migrator.mapping.model.edges import ItemStore, Questions
from migrator.mapping.model.evidence import (
    SHARE_FAULT,
    SIDES,
    Evidence,
    PatternPhase,
    Phase,
    Phases,
    Side,
    State,
    Window,
    share_fits,
)
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.mapping import Part, Pattern
from migrator.mapping.model.results import Rows
from migrator.mapping.patterns.answers import Designs, Record, kinds_of, records_of, rows_of
from migrator.mapping.patterns.params import read_member
from migrator.runtime.errors import SettingsError, did_you_mean
from migrator.settings.job import ReadSettings, mapping_named
from migrator.settings.transforms import sound_mapping
from migrator.source.adapter.events import EventHooks, Recording, WatchedSessions, Write
from migrator.stages.patterns.question import Question
from migrator.stages.patterns.replay import Sampler
from migrator.stages.reads.backends import Backends
from migrator.stages.reads.functions import Function, RoutedPattern
from migrator.stages.reads.metrics import ReadMetrics
from migrator.stages.reads.reads import (
    MappedReads,
    PagePosition,
    PageRows,
    PatternCall,
    PhaseCache,
    Reads,
    question_named,
)
from migrator.stages.reads.shadow import AnsweredCall, Shadow

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Records: TypeAlias = "Sequence[Any] | Record | DataclassInstance | None"
Given: TypeAlias = "Records | Mapping[str, Records] | Callable[..., Any]"
"""The answer of a side: records; for a pattern with parts, records by part; or a function of the pattern's parameters that
returns these.
"""

_MOST = 1_000_000
_KEY = "a key of the fake's own"


class Read(Struct, frozen=True):
    """A service's call. `side`: the one that answered."""

    pattern: str
    params: Mapping[str, Any]
    side: Side


class FakeMigration(Migration):
    """A `Migration` without a database, a journal or DynamoDB. Each pattern begins in `off`.

    Reads follow the phase and return the answer set with `give`. Parameters, sizes and cursors are checked as
    in the real one. Shadow reads compare nothing, and no mark is left.
    `calls`: the reads that were made.
    `writes`: rows changed through the objects passed to `dual_write`, and by hand, including rolled back
      ones.
    """

    def __init__(self, mapping: str | Path, *, service: str = "", version: str = "") -> None:
        """`mapping`: the mapping's file. Raises: SettingsError, MappingError."""
        self.calls: list[Read] = []
        self.writes: list[Write] = []
        self._name = service or "fake"
        parsed = sound_mapping(Path(mapping)).mapping
        self._asked = {name: FakeQuestion(parsed, pattern) for name, pattern in parsed.patterns.items()}
        self._phases = FakePhases()
        self._revision = parsed.revision
        self._lock = RLock()
        self._begin(ExitStack(), ReadSettings(cursor_key=_KEY))

    @classmethod
    def load(cls, job: str | Path, *, service: str = "", version: str = "") -> FakeMigration:
        """The fake for a job file's mapping. Environment variables in the job need not be set."""
        return cls(mapping_named(Path(job), os.environ), service=service, version=version)

    # ── set by a test ──

    def set_phase(
        self, pattern: str, phase: Phase, percent: int = 0, *, audience: Sequence[str] = ()
    ) -> None:
        """Set the pattern's phase. `audience`: of a ramp, as the command's `--for` takes it, such as 'user_id=42'. Raises:
        SettingsError.
        """
        asked = question_named(self._asked, pattern).pattern
        if phase not in get_args(Phase):
            raise SettingsError(f"phase '{phase}' not found{did_you_mean(phase, get_args(Phase))}")
        state = State(phase, percent, tuple(sorted(read_member(asked, member) for member in audience)))
        if not share_fits(state):
            raise SettingsError(SHARE_FAULT)
        self._phases.put(pattern, state)

    def give(self, pattern: str, answer: Given, *, side: Side | None = None) -> None:
        """Set the answer of the side (None: of both): records, or a function of the parameters.

        Records are dicts, dataclasses, named tuples or rows with the attributes that the pattern returns; a missing one is
        None. Values may be datetime, UUID and so on, which callers receive as from `read` and `typed()`.
        Raises: SettingsError for a record that the pattern cannot return.
        """
        question = question_named(self._asked, pattern)
        if not callable(answer):
            question.rows_of(answer)
        for each in _sides(side):
            question.given[each] = answer if callable(answer) else partial(_always, answer)

    def fail(self, pattern: str, error: Exception, *, side: Side | None = None) -> None:
        """Make reads of the side (None: of both) raise the error, until `give` sets an answer."""
        for each in _sides(side):
            question_named(self._asked, pattern).given[each] = partial(_raise, error)

    # ── for the service, without opening anything ──

    def dual_write(
        self,
        sessions: Any,
        *,
        mode: Literal["outbox", "strict"] = "outbox",
        unknown_rows: Literal["refuse", "lock"] = "refuse",
        flush: bool = False,
        longest_transaction_s: float = 30.0,
        longest_write_s: float = 2.0,
    ) -> DualWrite:
        """Record every further change through the sessions in `writes`. Raises: SettingsError."""
        self._refuse_closed()
        refuse_options(sessions, mode, unknown_rows, longest_transaction_s, longest_write_s)
        recording = WatchedSessions(cast("EventHooks", Recording(self.writes.append)))
        with ExitStack() as stack:
            stack.callback(recording.detach)
            recording.attach(sessions)
            handle = DualWrite(stack.pop_all())
        self._stack.callback(handle.close)
        return handle

    def mark_changed(
        self, connection: Any, table: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
    ) -> None:
        self._refuse_closed()
        if before is None and after is None:
            raise SettingsError(f"{table}: a change has a row before it, after it, or both")
        if after is None:
            self.writes.append(Write(table, "delete", dict(before or {})))
        else:
            self.writes.append(Write(table, "insert" if before is None else "update", dict(after)))

    @contextmanager
    def changing(self, connection: Any, table: str, *keys: Any) -> Iterator[None]:
        self._refuse_closed()
        yield
        self.writes += [Write(table, "update", {"key": key}) for key in keys]

    def begin_marking(self) -> None:
        self._refuse_closed()

    def pattern(self, name: str, /) -> Callable[[Callable[..., Any]], RoutedPattern]:
        """Like `Migration.pattern`; an answer set with `give` replaces the function's own."""
        question, shadow = question_named(self._asked, name), self._settings.shadow
        return lambda function: _FakeRouted(function, question, lambda: self._reads().reads, shadow)

    @property
    def metrics(self) -> Any:
        """A collector of prometheus-client with the phases and reads."""
        from migrator.cli.metrics import ProcessMetrics, phases_part, reads_part

        reads = self._reads().reads
        parts = (partial(phases_part, reads.phases.known), partial(reads_part, lambda: reads.ledger.totals))
        return ProcessMetrics("fake", self._name, parts)

    def _open_reading(self) -> MappedReads:
        blank = Window("", 0, "", self._name, self._revision, "service")
        ledger = ReadMetrics(cast("Evidence", None), blank, {}, lambda: "")
        reads = _FakeReads(
            self._phases,
            _NoShadow(self._settings.shadow, ledger, _no_sampler),
            ledger,
            lambda: None,
            calls=self.calls,
        )
        nowhere = Backends(cast("Questions", None), cast("ItemStore", None))
        return _FakeMappedReads(reads, self._asked, nowhere, nowhere, self._settings, self._revision)


class FakeQuestion(Question):
    def __init__(self, mapping: MappingModel, pattern: Pattern) -> None:
        super().__init__(mapping, pattern, Designs())
        self.given: dict[Side, Function] = {}

    def answer(
        self, side: Side, params: Mapping[str, Any], source: Questions, store: ItemStore
    ) -> Mapping[str, Rows]:
        """Raises: SettingsError if the test set no answer, or an invalid one; the error that the test set."""
        if side not in self.given:
            what = f"FakeMigration: {self.pattern.name} is answered by '{side}', and nothing was given for it"
            raise SettingsError(f"{what}; call give('{self.pattern.name}', [...])")
        return self.rows_of(self.given[side](**params))

    def rows_of(self, answer: Any) -> dict[str, Rows]:
        """Raises: SettingsError for an answer that the pattern cannot return."""
        records = records_of(self.pattern, answer, _MOST)
        for part in self.pattern.parts:
            self._refuse_unknown(part, records[part.name])
            self.kinds[part.name] |= kinds_of(records[part.name])
        return {part.name: rows_of(part, records[part.name]) for part in self.pattern.parts}

    def _refuse_unknown(self, part: Part, records: Sequence[Record]) -> None:
        for name in {name for record in records for name in record}:
            if name not in part.attributes:
                where = f"FakeMigration: {self.pattern.name} {part.name}".rstrip()
                raise SettingsError(f"{where} returns no '{name}'{did_you_mean(name, part.attributes)}")


class FakePhases(PhaseCache):
    """Phases set by a test. No thread refreshes them."""

    def __init__(self) -> None:
        super().__init__(cast("Phases", None), lambda: "", 3600.0)

    def put(self, pattern: str, state: State) -> None:
        known = dict(self._current)
        version = known[pattern].version + 1 if pattern in known else 1
        self._current = known | {pattern: PatternPhase(pattern, state, version)}


@dataclass(frozen=True)
class _FakeReads(Reads):
    calls: list[Read] = field(default_factory=list)

    def answer(self, call: PatternCall, side: Side, ask: Callable[[], Any]) -> Any:
        self.calls.append(Read(call.pattern.name, dict(call.values), side))
        return super().answer(call, side, ask)

    async def answer_async(self, call: PatternCall, side: Side, ask: Callable[[], Awaitable[Any]]) -> Any:
        self.calls.append(Read(call.pattern.name, dict(call.values), side))
        return await super().answer_async(call, side, ask)


class _FakeMappedReads(MappedReads):
    def _page(
        self,
        question: Question,
        values: Mapping[str, Any],
        size: int,
        side: Side,
        edges: Backends,
        position: PagePosition,
    ) -> PageRows:
        rows = question.answer(side, values, edges.source, edges.store)[""]
        end = position.given + size
        return PageRows(rows[position.given : end], PagePosition(end) if end < len(rows) else None)


class _FakeRouted(RoutedPattern):
    """The service's own functions, used if the test set no answer."""

    def _function(self, side: Side) -> Function:
        question = cast("FakeQuestion", self._question)
        given = question.given.get(side)
        if given is None:
            return super()._function(side)
        return partial(_awaited, given) if self._asynchronous else given


class _NoShadow(Shadow):
    def offer(self, pattern: str, answered: Callable[[], AnsweredCall]) -> None:
        return


async def _awaited(function: Function, **params: Any) -> Any:
    return function(**params)


def _always(answer: Any, **params: Any) -> Any:
    return answer


def _raise(error: Exception, **params: Any) -> Any:
    raise error


def _no_sampler(pattern: str) -> Sampler:
    raise NotImplementedError(pattern)


def _sides(side: Side | None) -> Sequence[Side]:
    if side is not None and side not in SIDES:
        raise SettingsError(f"a side is 'sql' or 'table', not {side!r}")
    return SIDES if side is None else (side,)
