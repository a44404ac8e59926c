"""The steps that bring a journal from the version of one release to that of the next, each applied once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version as package_version
from typing import NoReturn

from sqlalchemy import Connection, Engine, insert, inspect, select, update

from migrator.errors import SettingsError
from migrator.journal import schema
from migrator.journal.dialect import add_columns, insert_or_replace, seconds, set_up_alone

PACKAGE = "single-table-migrator"
OLDEST = 2
"""The first version that is brought up; what was before it has no release."""


@dataclass(frozen=True)
class Step:
    """`number`: the version that a journal has afterwards. `apply`: may be done twice, for on MariaDB and MySQL each
    change of a table is a commit, and a process may be killed before the version is written.

    A step only adds: a run of the release before may be at work, and goes on. Where a table must change in another way,
    a new one is made beside it.
    """

    number: int
    apply: Callable[[Connection], None]


def _record_steps(connection: Connection) -> None:
    """The record of the steps themselves; the columns that came to a table before there were steps."""
    schema.step.create(connection, checkfirst=True)
    add_columns(connection, schema.ADDED)


STEPS = (Step(3, _record_steps),)
"""In their order, without a gap; the last one makes what schema.VERSION says."""


def set_up(engine: Engine, name: str, reached: Callable[[], None]) -> bool:
    """Whether the journal was made just now; else it is brought to our version, as far as it is not of it.

    `name`: what messages call it; `reached`: called as soon as the database has answered. Of several processes one
    applies a step, while the others wait for it.
    Raises: SettingsError where it is of a newer version, or of one that no step begins with.
    """
    while True:
        with set_up_alone(engine) as connection:
            reached()
            known = _version(connection)
            if known is None or known == schema.VERSION:
                # A table that somebody took away comes again, too.
                schema.metadata.create_all(connection)
            if known is None:
                connection.execute(insert(schema.meta).values(version=schema.VERSION))
                _record(connection, schema.VERSION)
            if known is None or known == schema.VERSION:
                return known is None
            if not OLDEST <= known < schema.VERSION:
                _refuse(connection, name, known)
            # One step a transaction: what is done stays done, whatever becomes of the next one.
            following = next(one for one in STEPS if one.number == known + 1)
            following.apply(connection)
            _record(connection, following.number)
            connection.execute(update(schema.meta).values(version=following.number))


def _version(connection: Connection) -> int | None:
    """The journal's version; None where it is yet to be made."""
    if not inspect(connection).has_table(schema.meta.name):
        return None
    known = connection.execute(select(schema.meta.c.version)).scalar()
    return None if known is None else int(known)


def _record(connection: Connection, number: int) -> None:
    row = {"number": number, "at": seconds(connection), "migrator": package_version(PACKAGE)}
    connection.execute(insert_or_replace(connection, schema.step), row)


def _refuse(connection: Connection, name: str, known: int) -> NoReturn:
    what = f"the journal {name} is of version {known}, this migrator writes {schema.VERSION}"
    if known < OLDEST:
        raise SettingsError(
            f"{what} and brings up those of version {OLDEST} and later; finish its runs with the migrator that began them,"
            " or name another journal"
        )
    raise SettingsError(f"{what}; install {_newer(connection)}, or name another journal")


def _newer(connection: Connection) -> str:
    """The release to install, as far as the journal says which one brought it to where it is."""
    made_by = None
    if inspect(connection).has_table(schema.step.name):
        latest = select(schema.step.c.migrator).order_by(schema.step.c.number.desc()).limit(1)
        made_by = connection.execute(latest).scalar()
    own = f"this is {package_version(PACKAGE)}"
    return f"migrator {made_by} or a newer one ({own})" if made_by else f"a newer migrator ({own})"
