"""A job's way from one revision of its mapping to another: texts of revisions, and how far a change has come."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, func, select, update

from migrator.journal.database import Database, insert_or_replace, once_only, repeatable, seconds
from migrator.journal.schema import revision_change as changes
from migrator.journal.schema import revision_text as texts
from migrator.mapping.difference.steps import under_way
from migrator.mapping.model.instances import ChangeStep, Revision, RevisionChange
from migrator.runtime.errors import OldRevisionError, SettingsError

# ── inside of a transaction on the job's newest revision ──


NEVER = 0.0
"""When a revision became the newest: not yet."""


def keep_text(connection: Connection, job: str, mapping: str, text: str, since: float | None) -> None:
    """Keeps the text of a revision, as it is written now. `since`: when it became the newest, where nothing is known of it
    yet; None for just now, whatever is known."""
    if not text:
        return
    here = (texts.c.job == job, texts.c.mapping == mapping)
    row = connection.execute(select(texts.c.text, texts.c.since).where(*here)).first()
    if row is None or since is None or row.text != text:
        at = seconds(connection) if since is None else since if row is None else float(row.since)
        values = {"job": job, "mapping": mapping, "text": text, "since": at}
        connection.execute(insert_or_replace(connection, texts), values)


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
            last = _last(connection, self.job)
            if last is not None and not last.is_done and (last.after, last.before) != (before, after):
                raise SettingsError(under_way(last, after))
            number = 1 if last is None else last.number + 1
            step: ChangeStep = (
                "unasked" if goes_back and not _was_newest(connection, self.job, before) else "indexes"
            )
            connection.execute(update(changes).where(changes.c.job == self.job).values(step=""))
            row = {"before": before, "after": after, "goes_back": int(goes_back), "step": step}
            values = {"job": self.job, "number": number, "since": seconds(connection), **row}
            connection.execute(insert_or_replace(connection, changes), values)
            return RevisionChange(number, before, after, goes_back, step)

    @repeatable
    def advance(self, change: RevisionChange, step: ChangeStep) -> None:
        """`step`: the one that is to be done next."""
        here = (changes.c.job == self.job, changes.c.number == change.number)
        with self.database.begin() as connection:
            connection.execute(update(changes).where(*here).values(step=step))

    @repeatable
    def is_left(self, mapping: str) -> bool:
        """Whether the job went back when it last went from this revision to another one."""
        query = select(changes.c.goes_back).where(changes.c.job == self.job, changes.c.before == mapping)
        with self.database.begin(reads=True) as connection:
            return bool(connection.execute(query.order_by(changes.c.number.desc()).limit(1)).scalar())

    @repeatable
    def was_newest(self, mapping: str) -> bool:
        """Whether writers may have worked by it; also where that is not known."""
        with self.database.begin(reads=True) as connection:
            return _was_newest(connection, self.job, mapping)

    @repeatable
    def text(self, mapping: str) -> str | None:
        """The mapping of a revision as it was written; None for a revision that is not known."""
        here = (texts.c.job == self.job, texts.c.mapping == mapping)
        with self.database.begin() as connection:
            return connection.execute(select(texts.c.text).where(*here)).scalar()

    @repeatable
    def before(self, mapping: str) -> str | None:
        """The revision that was the newest before this one, of those whose text is kept; None for none."""
        others = select(texts.c.mapping).where(
            texts.c.job == self.job, texts.c.mapping != mapping, texts.c.since > NEVER
        )
        with self.database.begin() as connection:
            return connection.execute(others.order_by(texts.c.since.desc()).limit(1)).scalar()

    @repeatable
    def keep(self, mapping: str, text: str) -> None:
        """Keep the text of a revision that is not the newest yet."""
        with self.database.begin() as connection:
            keep_text(connection, self.job, mapping, text, NEVER)


def _last(connection: Connection, job: str) -> RevisionChange | None:
    number = select(func.max(changes.c.number)).where(changes.c.job == job).scalar_subquery()
    row = connection.execute(select(changes).where(changes.c.job == job, changes.c.number == number)).first()
    return None if row is None else _change(row)


def _was_newest(connection: Connection, job: str, mapping: str) -> bool:
    """Also where that is not known."""
    query = select(texts.c.since).where(texts.c.job == job, texts.c.mapping == mapping)
    since = connection.execute(query).scalar()
    return since is None or since > NEVER


def _change(row: Row[Any]) -> RevisionChange:
    return RevisionChange(row.number, row.before, row.after, bool(row.goes_back), row.step)
