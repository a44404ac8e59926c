"""Errors shown to users, faults with their place, and the nearest known name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# All errors that migrator raises on purpose, each class with its exit code.

CLEAN = 0
DIFFERENT = 1
WRONG_USE = 2
STOPPED = 3
INTERRUPTED = 130


# ── Counts in sentences ──

_OF_ONE = {"are": "is", "were": "was", "have": "has", "do": "does", "go": "goes"}


def amount(count: int, what: str, of_many: str = "") -> str:
    """`1 row`, `1,234 rows`, `2 open shards`; with a verb in agreement: `1 row waits`, `2 rows wait`."""
    if count != 1:
        ends = "es" if what.endswith(("s", "x", "ch", "sh")) else "s"
        what = what[:-1] + "ies" if what.endswith("y") and what[-2] not in "aeiou" else what + ends
    return f"{count:,} {what}{f' {verb(count, of_many)}' if of_many else ''}"


def verb(count: int, of_many: str) -> str:
    return of_many if count != 1 else _OF_ONE.get(of_many, f"{of_many}s")


class MigratorError(Exception):
    """The root of our errors: a message with where, what and what to do next.

    `exit_code`: of the command line (docs/scripts.md, "Exit codes").
    """

    exit_code = WRONG_USE


class SettingsError(MigratorError):
    """A job, an option or the environment is wrong; nothing was done."""


class OldRevisionError(SettingsError):
    """The job uses another mapping than this writer, or other columns; it stops writing."""


class SourceError(MigratorError):
    """The source cannot be reached or read; messages never contain a password."""

    exit_code = STOPPED


class MissingNameError(SourceError):
    """A statement names a table or a column that the source does not have, or no longer has."""


class UnfitValueError(SourceError):
    """The source rejects a value for a column, or a statement for its schema; other statements may succeed."""


class HiddenRowsError(SourceError):
    """The source would hide rows from this user (row level security); incomplete reads must not be used."""


class TooSlowError(SourceError):
    """The source ended a statement that exceeded its time limit; a smaller one may succeed."""


class LongAnswerError(SourceError):
    """The source's answer exceeds the maximum bytes; a part of it may fit."""


class NotCountedError(SourceError):
    """A total that the source does not provide; the message contains the reason."""


class TargetError(MigratorError):
    """DynamoDB rejects the request or does not fit (no table, other keys, no credentials)."""


class ItemRefusedError(TargetError):
    """DynamoDB rejected one item for its content; others may be taken."""


class FullCollectionError(ItemRefusedError):
    """The item collection of the partition key is full."""


class StoppedError(MigratorError):
    """A failure that outlasted every retry; checkpoints are kept, the same command resumes."""

    exit_code = STOPPED


class AwayError(StoppedError):
    """No answer, or no acceptance, for the whole time of the retries."""


class NeverTakenError(AwayError):
    """Throttled or left unprocessed to the last try; others may be taken."""


class ExpiredIteratorError(StoppedError):
    """A shard iterator was unused for too long; the checkpoint has the position to resume from."""


class LostRecordsError(MigratorError):
    """A stream may have dropped unprocessed changes. No retry helps: the message names the fix."""

    exit_code = STOPPED


class RefusedError(MigratorError):
    """The requested action is not done: the evidence does not permit it, or the operator declined."""

    exit_code = DIFFERENT


class Interrupted(MigratorError):
    """Ctrl-C or SIGTERM: the checkpoint is kept."""

    exit_code = INTERRUPTED


class RowError(MigratorError):
    """One row that cannot become items; it is refused, and becomes a finding.

    The message names entity, item and attribute, never a value of the row. `private` may contain one: it is shown to the
    person who requested this row (`mapping try`), never in a log, journal or report.
    """

    exit_code = DIFFERENT

    def __init__(self, message: str, *, private: str = "") -> None:
        super().__init__(message)
        self.private = private


class TwinRowsError(MigratorError):
    """Several rows have one key, so one item would represent them all; none was written.

    The message contains no key. `keys`: source keys, with the number of rows.
    """

    def __init__(self, where: str, entity: str, keys: Sequence[tuple[str, int]]) -> None:
        what = f"{where}: {amount(len(keys), 'key')} that several rows have, so that one item would stand for all of them"
        super().__init__(f"{what}; name columns in key: that distinguish them, or fix the rows")
        self.entity = entity
        self.keys = tuple(keys)


class UnmarkedError(MigratorError):
    """A service's change would leave no mark, so it is refused; its transaction must be rolled back."""


def reason_of(error: Exception) -> str:
    """The message of our own errors, the type of any other, which may quote a value."""
    return str(error) if isinstance(error, MigratorError) else type(error).__name__


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault in a file: its place, and how to fix it."""

    file: str
    line: int
    where: str
    what: str
    warning: bool = False

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        where = f"{self.where}: " if self.where else ""
        kind = "warning: " if self.warning else ""
        return f"{place}: {kind}{where}{self.what}"


class MappingError(MigratorError):
    """All faults of one mapping or job file at once."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = tuple(faults)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return '; did you mean 'x'?' for the nearest known name, or the known names if they are few, or ''."""
    from difflib import get_close_matches  # only a wrong name needs it

    choices = sorted(set(known))
    near = get_close_matches(name, choices, n=1, cutoff=0.6)
    if not near:
        lowered = {choice.lower(): choice for choice in choices}
        near = [lowered[match] for match in get_close_matches(name.lower(), list(lowered), n=1)]
    if near:
        return f"; did you mean '{near[0]}'?"
    return f"; known: {', '.join(choices)}" if 0 < len(choices) <= 12 else ""
