"""A job's way from one revision of its mapping to another: texts of revisions, and how far a change has come."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlalchemy import Connection

from migrator.journal.database import Database, once_only, repeatable, seconds
from migrator.journal.records import Records
from migrator.mapping.difference.steps import under_way
from migrator.mapping.model.instances import ChangeStep, Revision, RevisionChange
from migrator.runtime.errors import OldRevisionError, SettingsError

# ── inside of a transaction on the job's newest revision ──


NEVER = 0.0
"""When a revision became the newest: not yet."""


@dataclass(frozen=True, slots=True)
class _RevisionText:
    """The mapping of a revision, so that what it made of a row is known later. `since`: when it became the newest last."""

    text: str
    since: float


_TEXTS = Records[_RevisionText]("revision_text", _RevisionText)
_CHANGES = Records[tuple[RevisionChange, ...]]("revision_change", tuple[RevisionChange, ...])
"""A job's changes from one revision to another, in their order."""


def keep_text(connection: Connection, job: str, mapping: str, text: str, since: float | None) -> None:
    """Keeps the text of a revision, as it is written now. `since`: when it became the newest, where nothing is known of it
    yet; None for just now, whatever is known."""
    if not text:
        return
    before = _TEXTS.lock(connection, job, mapping)
    if before is None or since is None or before.text != text:
        at = seconds(connection) if since is None else since if before is None else before.since
        _TEXTS.put(connection, job, _RevisionText(text, at), mapping)


def refuse_third(connection: Connection, job: str, own: Revision) -> None:
    """Raises: OldRevisionError where the job is on its way to another revision than `own`, which is not the newest."""
    change = _last(connection, job)
    if change is not None and not change.is_done and change.after != own.mapping:
        raise OldRevisionError(under_way(change, own.mapping))


# ── by itself ──


class SqlChanges:
    """The changes of one job, and the texts of its revisions."""

    def __init__(self, database: Database, job: str) -> None:
        self.database = database
        self.job = job

    @repeatable
    def last(self) -> RevisionChange | None:
        """The last one that was begun, done or not."""
        with self.database.begin() as connection:
            return _last(connection, self.job)

    @once_only
    def begin(self, before: str, after: str, *, goes_back: bool) -> RevisionChange:
        """The change, which is under way from now on. One that goes back from an unfinished one takes its place; where no
        writer has worked by what it leaves, there is nothing to do but to take indexes away.

        Raises: SettingsError where another one is under way.
        """
        with self.database.begin() as connection:
            changes = _CHANGES.lock(connection, self.job) or ()
            last = changes[-1] if changes else None
            if last is not None and not last.is_done and (last.after, last.before) != (before, after):
                raise SettingsError(under_way(last, after))
            step: ChangeStep = (
                "unasked" if goes_back and not _was_newest(connection, self.job, before) else "indexes"
            )
            change = RevisionChange(len(changes) + 1, before, after, goes_back, step)
            done = (replace(entry, step="") for entry in changes)
            _CHANGES.put(connection, self.job, (*done, change))
            return change

    @repeatable
    def advance(self, change: RevisionChange, step: ChangeStep) -> None:
        """`step`: the one that is to be done next."""
        with self.database.begin() as connection:
            changes = _CHANGES.lock(connection, self.job) or ()
            advanced = (
                replace(entry, step=step) if entry.number == change.number else entry for entry in changes
            )
            _CHANGES.put(connection, self.job, tuple(advanced))

    @repeatable
    def is_left(self, mapping: str) -> bool:
        """Whether the job went back when it last went from this revision to another one."""
        with self.database.begin(reads=True) as connection:
            changes = _CHANGES.get(connection, self.job) or ()
        return next((change.goes_back for change in reversed(changes) if change.before == mapping), False)

    @repeatable
    def was_newest(self, mapping: str) -> bool:
        """Whether writers may have worked by it; also where that is not known."""
        with self.database.begin(reads=True) as connection:
            return _was_newest(connection, self.job, mapping)

    @repeatable
    def text(self, mapping: str) -> str | None:
        """The mapping of a revision as it was written; None for a revision that is not known."""
        with self.database.begin() as connection:
            kept = _TEXTS.get(connection, self.job, mapping)
        return None if kept is None else kept.text

    @repeatable
    def before(self, mapping: str) -> str | None:
        """The revision that was the newest before this one, of those whose text is kept; None for none."""
        with self.database.begin() as connection:
            kept = _TEXTS.all(connection, self.job)
        since = {name: text.since for name, text in kept.items() if name != mapping and text.since > NEVER}
        return max(since, key=lambda name: since[name], default=None)

    @repeatable
    def keep(self, mapping: str, text: str) -> None:
        """Keep the text of a revision that is not the newest yet."""
        with self.database.begin() as connection:
            keep_text(connection, self.job, mapping, text, NEVER)


def _last(connection: Connection, job: str) -> RevisionChange | None:
    changes = _CHANGES.get(connection, job)
    return changes[-1] if changes else None


def _was_newest(connection: Connection, job: str, mapping: str) -> bool:
    """Also where that is not known."""
    kept = _TEXTS.get(connection, job, mapping)
    return kept is None or kept.since > NEVER
