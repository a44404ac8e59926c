"""A job's `cutover:` and `hooks:`: evidence that a move needs, limits of the watch, programs to run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from migrator.settings.source import Duration, Form, Integer, Number

EventKind = Literal["run_failed", "rolled_back", "lag_high"]


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """When a pattern is moved back by itself. Shares are of calls, 0 to 1; a share counts as passed once chance explains
    it less than once in a million.

    `every_s`: how often it looks. `answers_min`: answers that it judges p99 by at least. `lately_s`: beside all calls
    since the move, those of so long are judged by themselves, so that a late fault does not hide behind good hours.
    `watched_s`: how long after its move a pattern is watched.
    """

    every_s: float = 10.0
    answers_min: int = 100
    lately_s: float = 600.0
    watched_s: float = 7 * 86_400.0
    mismatch_max: float = 0.005
    error_max: float = 0.01
    p99_factor: float = 3.0


@dataclass(frozen=True, slots=True)
class CutoverSettings:
    """What a move forward needs. Ages and lags in seconds, shares 0 to 1.

    `comparisons_min`: answers compared since the last move. `kinds_min`: the share of the parameter kinds that a pattern
    can have which were compared. `mismatch_max`, `error_max`: shares that must be passed by less than one chance in
    twenty: 0.003 is none in 1,000. `p99_factor`: of SQL's p99, for a pattern without a budget. `quiet_s`: how long
    nothing may change in the source before a pattern is complete. `leave`: tables that nobody migrates on purpose; a *
    stands for anything.
    """

    verify_max_age_s: float = 86_400.0
    lag_max_s: float = 10.0
    comparisons_min: int = 1000
    kinds_min: float = 0.5
    mismatch_max: float = 0.003
    error_max: float = 0.003
    p99_factor: float = 1.5
    evidence_max_age_s: float = 86_400.0
    quiet_s: float = 10.0
    leave: tuple[str, ...] = ()
    watch: WatchSettings = field(default_factory=WatchSettings)


@dataclass(frozen=True, slots=True)
class Hook:
    """A program that is told of events. `command`: its words, or one text for the shell. Never shown: it may hold a
    secret."""

    on: tuple[EventKind, ...]
    command: tuple[str, ...] | str = field(repr=False)
    wait_s: float = 10.0


_Age = Annotated[Duration, Field(gt=0, le=366 * 86_400)]
_Share = Annotated[Number, Field(ge=0, le=1)]
_Limit = Annotated[Number, Field(gt=0, lt=1)]
_Count = Annotated[Integer, Field(ge=1, le=10**9)]
_Factor = Annotated[Number, Field(ge=1, le=1000)]


def _has_words(command: str | list[str]) -> str | list[str]:
    if not command or not (command if isinstance(command, str) else command[0]).strip():
        raise ValueError("write the program and its words as a list, or one text for the shell")
    return command


class WatchForm(Form):
    every_s: Annotated[Duration, Field(ge=0.1, le=3600)] = 10.0
    answers_min: _Count = 100
    lately: _Age = 600.0
    watched: _Age = 7 * 86_400.0
    mismatch_max: _Limit = 0.005
    error_max: _Limit = 0.01
    p99_factor: _Factor = 3.0


class CutoverForm(Form):
    verify_max_age: _Age = 86_400.0
    lag_max_s: Annotated[Duration, Field(gt=0, le=3600)] = 10.0
    comparisons_min: _Count = 1000
    kinds_min: _Share = 0.5
    mismatch_max: _Limit = 0.003
    error_max: _Limit = 0.003
    p99_factor: _Factor = 1.5
    evidence_max_age: _Age = 86_400.0
    quiet: _Age = 10.0
    leave: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    watch: WatchForm = WatchForm()

    def settings(self) -> CutoverSettings:
        return CutoverSettings(**_in_seconds(self, "watch"), watch=WatchSettings(**_in_seconds(self.watch)))


class WritesForm(Form):
    """Entities, by their names in the mapping, that the service writes to the table itself."""

    direct: tuple[Annotated[str, Field(min_length=1)], ...] = ()


class HookForm(Form):
    on: Annotated[list[EventKind], Field(min_length=1)]
    command: Annotated[str | list[str], AfterValidator(_has_words)]
    wait: Annotated[Duration, Field(gt=0, le=300)] = 10.0

    def hook(self) -> Hook:
        command = self.command if isinstance(self.command, str) else tuple(self.command)
        return Hook(tuple(self.on), command, self.wait)


def _in_seconds(form: Form, *without: str) -> dict[str, Any]:
    """The form's values, durations under a name that says their unit."""
    durations = {"verify_max_age", "evidence_max_age", "quiet", "lately", "watched"}
    values = form.model_dump(exclude=set(without))
    return {f"{name}_s" if name in durations else name: value for name, value in values.items()}
