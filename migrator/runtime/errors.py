"""Errors that users see, faults with their place, and the nearest known name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# ──
# Everything that migrator raises on purpose, each class with the exit code that it ends a command with.

CLEAN = 0
DIFFERENT = 1
WRONG_USE = 2
STOPPED = 3
INTERRUPTED = 130


# ── Counts in sentences ──

_OF_ONE = {"are": "is", "were": "was", "have": "has", "do": "does", "go": "goes"}


def amount(count: int, what: str, of_many: str = "") -> str:
    """`1 row`, `1,234 rows`, `2 open shards`; with the verb that follows, as many take it: `1 row waits`, `2 rows wait`."""
    if count != 1:
        ends = "es" if what.endswith(("s", "x", "ch", "sh")) else "s"
        what = what[:-1] + "ies" if what.endswith("y") and what[-2] not in "aeiou" else what + ends
    return f"{count:,} {what}{f' {verb(count, of_many)}' if of_many else ''}"


def verb(count: int, of_many: str) -> str:
    """A verb after a count: `wait` of many rows, `waits` of one."""
    return of_many if count != 1 else _OF_ONE.get(of_many, f"{of_many}s")


class MigratorError(Exception):
    """The root of our errors: a message that says where, what and what to do next.

    `exit_code` is what the command line ends with (docs/scripts.md, "Exit codes").
    """

    exit_code = WRONG_USE


class SettingsError(MigratorError):
    """A job, an option or the environment is wrong; nothing was done."""


class OldRevisionError(SettingsError):
    """The job has gone on to another mapping than this writer's, or to other columns; it writes nothing more."""


class SourceError(MigratorError):
    """The source cannot be reached or read; messages never hold a password."""

    exit_code = STOPPED


class MissingNameError(SourceError):
    """A statement names a table or a column that the source does not have (any more)."""


class UnfitValueError(SourceError):
    """The source does not take a value for a column, or a statement for its schema; other statements may do."""


class HiddenRowsError(SourceError):
    """The source would leave rows out for this user (row level security), and none of ours must go by what is left."""


class TooSlowError(SourceError):
    """The source ended a statement that took longer than allowed; a smaller one may do."""


class LongAnswerError(SourceError):
    """The source's answer has more bytes than one may have; a part of it may do."""


class NotCountedError(SourceError):
    """A total that the source does not give; the message says why."""


class TargetError(MigratorError):
    """DynamoDB refused or does not fit (no table, other keys, no credentials)."""


class ItemRefusedError(TargetError):
    """DynamoDB refused one item for what it is; others may be taken."""


class FullCollectionError(ItemRefusedError):
    """There is no room for the item among those of its partition key."""


class StoppedError(MigratorError):
    """A failure that outlasted every retry; checkpoints are kept, the same command resumes."""

    exit_code = STOPPED


class AwayError(StoppedError):
    """Nothing answered, or took the request, as long as it was tried."""


class NeverTakenError(AwayError):
    """Throttled, or left unprocessed, to the last try; others may be taken."""


class ExpiredIteratorError(StoppedError):
    """A place in a stream's shard was not asked on from for too long; the checkpoint has the place to resume from."""


class LostRecordsError(MigratorError):
    """A stream may have dropped changes that were not worked. No retry helps: the message names what mends it."""

    exit_code = STOPPED


class RefusedError(MigratorError):
    """What was asked for is not done: the evidence is against it, or the person who was asked said no."""

    exit_code = DIFFERENT


class Interrupted(MigratorError):
    """Ctrl-C or SIGTERM: the checkpoint is kept."""

    exit_code = INTERRUPTED


class RowError(MigratorError):
    """One row that cannot become items; it is refused, and becomes a finding.

    The message names entity, item and attribute and never holds a value of the row. `private` may: it is for the eyes of
    who asked for this row (`mapping try`), and for no log, journal or report.
    """

    exit_code = DIFFERENT

    def __init__(self, message: str, *, private: str = "") -> None:
        super().__init__(message)
        self.private = private


class TwinRowsError(MigratorError):
    """Several rows have one key, so that one item would stand for all of them; nothing of theirs was written.

    The message names no key; `keys` are those, as source keys, and how many rows have each.
    """

    def __init__(self, where: str, entity: str, keys: Sequence[tuple[str, int]]) -> None:
        what = f"{where}: {amount(len(keys), 'key')} that several rows have, so that one item would stand for all of them"
        super().__init__(f"{what}; name columns in key: that distinguish them, or fix the rows")
        self.entity = entity
        self.keys = tuple(keys)


class UnmarkedError(MigratorError):
    """A service's change would leave no mark, so it is refused; its transaction is to be rolled back."""


def reason_of(error: Exception) -> str:
    """What may be logged of it: the message of an error of ours; of any other, whose message may hold a value, its type."""
    return str(error) if isinstance(error, MigratorError) else type(error).__name__


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong in a file: where it stands, what it is and what would mend it."""

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
    """'; did you mean 'x'?' for the nearest known name, or the known names where they are few, or nothing."""
    choices = sorted(set(known))
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.6)
    if not near:
        lowered = {choice.lower(): choice for choice in choices}
        near = [lowered[match] for match in difflib.get_close_matches(name.lower(), list(lowered), n=1)]
    if near:
        return f"; did you mean '{near[0]}'?"
    return f"; known: {', '.join(choices)}" if 0 < len(choices) <= 12 else ""
