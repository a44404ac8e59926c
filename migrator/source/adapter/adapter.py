"""The adapter: what a service writes through its own connections leaves the marks that triggers would leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy.engine import Connection

from migrator.errors import UnmarkedError
from migrator.mapping.changes import Captured
from migrator.ports.live import Change
from migrator.server_failures import is_broken, is_contended
from migrator.source.adapter.driver import Driver
from migrator.source.adapter.images import Images
from migrator.source.adapter.listening import Listening, refuse_autocommit
from migrator.source.adapter.marking import Changed, Marking, UnknownRows
from migrator.source.adapter.watched import Place, watched_tables
from migrator.source.adapter.works import Work, changes
from migrator.source.capture.design import Ddl
from migrator.source.capture.writing import Writing
from migrator.source.failures import source_error

BeforeCommit = Callable[[Connection, Sequence[Change], float], None]
"""(the service's connection, what its transaction changed, when its first change began)."""
_FITS = "migrator_fits"


@dataclass(frozen=True)
class Rules:
    """`installation`: of capture, which the service's database must have. `triggered`: tables whose triggers leave the
    marks. `check`: raises when the service must change nothing more. `before_commit`: of strict mode. `reads`: whether
    what changed must be known; else triggers mark all of it. `keeps_images`: whether anybody wants more of it than marks.
    `writes`: whether items are written before or after commits."""

    installation: str
    triggered: frozenset[str]
    unknown_rows: UnknownRows
    check: Callable[[], None]
    before_commit: BeforeCommit | None
    clock: Callable[[], float]
    reads: bool
    keeps_images: bool
    writes: bool


class Adapter:
    """A listening.Watcher. `listening` is to be attached to the service's engines."""

    def __init__(self, writing: Writing, captured: Sequence[Captured], rules: Rules) -> None:
        def look(connection: Connection) -> Images:
            return Images(watched_tables(connection, captured), writing.ddl(connection))

        images = writing.read("looking at foreign keys", look)
        self.rules = rules
        marking = Marking(images.tables, images, rules.unknown_rows, rules.keeps_images)
        self.listening = Listening(marking, self, rules.clock)

    @property
    def ddl(self) -> Ddl:
        return self.listening.marking.images.ddl

    # ── listening.Watcher ──

    @property
    def reads(self) -> bool:
        return self.rules.reads

    def begins(self, driver: Driver) -> None:
        self.rules.check()
        if self.reads:
            refuse_autocommit(driver)
        if driver.info.get(_FITS) != self.rules.installation:
            self._look_at(driver)
            driver.info[_FITS] = self.rules.installation

    def leaves_marks(self, changed: Changed) -> bool:
        return changed.table.name not in self.rules.triggered

    @property
    def leaves_any(self) -> bool:
        tables = self.listening.marking.tables.tables.values()
        return self.reads and any(
            one.captured is not None and one.name not in self.rules.triggered for one in tables
        )

    def commits(self, connection: Connection, work: Work) -> None:
        # Of a process that was frozen since its statement nobody knows that this may still be committed.
        self.rules.check()
        if self.rules.before_commit is not None and work.changed:
            self.rules.before_commit(connection, changes(work.changed), work.begun_at)

    def prepares(self, work: Work) -> None:
        self.rules.check()
        if self.rules.before_commit is not None:
            what = "dual write: strict mode cannot write items before a commit in two phases"
            raise UnmarkedError(f"{what}; use outbox mode for this transaction's session")

    # ── the first look at a connection ──

    def _look_at(self, driver: Driver) -> None:
        """Whether this is the database that is captured, and marks can be left in it.

        Raises: UnmarkedError, with what to do.
        """
        statement = f"SELECT installation FROM {self.ddl.ticket} WHERE id = 1"
        nothing = (
            f"INSERT INTO {self.ddl.mark} (table_name, changed_at)"
            f" SELECT '', 0 FROM (SELECT 1 AS one) AS no_row WHERE 1 = 0"
        )
        try:
            found = driver.rows(driver.sql(statement))
            if self.reads:
                driver.run(driver.sql(nothing))
        except Exception as error:
            if is_contended(error) or is_broken(error):
                raise  # as any statement of the service would
            why = source_error(error, "dual write", "this connection cannot use capture's tables")
            grants = f"GRANT SELECT ON {self.ddl.ticket}, INSERT ON {self.ddl.mark}"
            raise UnmarkedError(f"{why}; {grants} to its user, or run `migrator capture install`") from None
        if [tuple(row) for row in found] != [(self.rules.installation,)]:
            what = "dual write: this connection is not to the database that the job captures"
            raise UnmarkedError(f"{what}, or capture was put in anew; give the service and the job one URL")
        if driver.engine.sessions.charset and self.reads:
            _refuse_charset(driver)
        if driver.engine.server.hides_rows and self.reads:
            _refuse_hidden_rows(driver, self.listening.marking.tables.tables)


def _refuse_hidden_rows(driver: Driver, tables: Iterable[Place]) -> None:
    """A policy hides rows of a reader that foreign keys change, and an UPDATE without WHERE may: both would go unmarked."""
    asked = driver.sql(
        "SELECT n.nspname || '.' || c.relname FROM pg_catalog.pg_class c"
        " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relrowsecurity AND pg_catalog.row_security_active(c.oid) AND n.nspname || '.' || c.relname IN ("
    )
    asked.listed([f"{place.schema}.{place.name}" for place in tables])
    if hidden := sorted(str(name) for (name,) in driver.rows(asked.text(") "))):
        what = f"dual write: row level security hides rows of {', '.join(hidden)} from this service, and changes of them"
        advice = "let triggers leave the marks (`migrator capture install`), in outbox mode; or ALTER ROLE … BYPASSRLS"
        raise UnmarkedError(f"{what} would go unmarked; {advice}")


def _refuse_charset(driver: Driver) -> None:
    asked = driver.sql(driver.engine.sessions.charset)
    if any(name != "utf8mb4" for name in driver.rows(asked)[0]):
        what = "dual write: this connection does not speak utf8mb4, so that keys would lose letters"
        raise UnmarkedError(f"{what}; write ?charset=utf8mb4 into its URL")
