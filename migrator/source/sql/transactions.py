"""Transactions at the source: read snapshots, row trees, and writes to our own tables; its errors as ours."""

from __future__ import annotations

import operator
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from datetime import time
from functools import lru_cache, partial
from itertools import groupby, repeat
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import Pool, PoolProxiedConnection

from migrator.mapping.items.native import InPlace
from migrator.mapping.model.facts import CollectionPlan, EntityPlan
from migrator.mapping.model.table import RowTree
from migrator.runtime.errors import (
    HiddenRowsError,
    LongAnswerError,
    MissingNameError,
    NotCountedError,
    SourceError,
    TooSlowError,
    UnfitValueError,
)
from migrator.runtime.retry import Backoff, Retry
from migrator.runtime.server_errors import (
    denial,
    is_broken,
    is_busy,
    is_contended,
    is_of_a_file,
    mysql_number,
    own_reason,
    takes_no_writes,
    why_unreached,
)
from migrator.runtime.system import tell_of_forks
from migrator.runtime.values import replace
from migrator.source.engines import shared
from migrator.source.engines.base import Address, ConnectionOptions
from migrator.source.engines.connect import (
    ENGINES,
    begin_reading,
    engine_at,
    place_of,
    read_engine,
    write_engine,
)
from migrator.source.engines.ddl import Ddl
from migrator.source.sql.selects import Key

# ── Errors of a source: where, which kind, why, and what to do next ──

_CONNECTING = "the connection failed; look at host, port, user and password of the source's URL"
_OTHERWISE = "see the database's own log{}; nothing was written"


_ERROR_OF_REASON: dict[type[SourceError], tuple[str, ...]] = {
    MissingNameError: ("no_table", "no_column"),
    NotCountedError: ("sum_overflow",),
    TooSlowError: ("cancelled", "took_too_long", "cancelled_by_time"),
}
"""By their names in errors.toml."""
_DENIED = "42501"
_OF_ONE_STATEMENT = frozenset({"DataError", "ProgrammingError"})
"""SQLAlchemy's names of errors that another statement, or another value, may avoid."""


def source_error(error: BaseException, place: str, doing: str, tried: str = "") -> SourceError:
    """`place`, `doing`, `tried`: for the message.

    The driver's message is only parsed, never included: it may quote values, SQL or the URL. The exception is
    a server's answer to a refused connection.
    """
    cause = getattr(error, "orig", None) or error
    hidden = next(filter(None, (engine.errors.hidden_rows(cause) for engine in ENGINES)), None)
    reason = hidden or denial(error) or _reason(cause)
    texts = shared.explanations("reasons")
    error_type: type[SourceError] = next(
        (kind for kind, of in _ERROR_OF_REASON.items() if reason in map(texts.get, of)), SourceError
    )
    if hidden:
        error_type = HiddenRowsError
    elif error_type is SourceError and type(error).__name__ in _OF_ONE_STATEMENT:
        error_type = SourceError if getattr(cause, "sqlstate", "") == _DENIED else UnfitValueError
    return error_type(f"{place}: {doing}: {type(cause).__name__}: {reason}{own_reason(error)}{tried}")


def _reason(cause: BaseException) -> str:
    connecting = any(engine.errors.is_connecting(cause) for engine in ENGINES)
    number = f" for error {found}" if (found := mysql_number(cause)) else ""
    return next(_reasons(cause), _CONNECTING if connecting else _OTHERWISE.format(number))


def _reasons(cause: BaseException) -> Iterator[str]:
    for engine in ENGINES:
        yield from engine.errors.reasons(cause)
    text = str(cause)
    for pattern, reason in shared.explanations("text").items():
        if re.search(pattern, text, re.IGNORECASE):
            yield reason
    if reason := why_unreached(cause, "the source's URL"):
        yield reason


Result = TypeVar("Result")

# ── Snapshots that are read: when the connection breaks, the whole read is tried again ──


def of_the_source(connection: Connection) -> None:
    """Accept each connection: only a replica may be behind."""


class Reading:
    """`place`: the database's name in messages.
    `retry`: for a server that was reachable before.
    `admit`: checks each connection before it is read from, and raises if it must not be.
    """

    def __init__(self, engine: Engine, place: str, retry: Retry, admit: Callable[[Connection], None]) -> None:
        self.engine = engine
        self.kind = engine_at(engine)
        self.place = place
        self._retry = retry
        self._admit = admit
        self._reached = False
        self._inherited: list[Pool] = []
        tell_of_forks(self)
        self._driver_error: type[Exception] = engine.dialect.loaded_dbapi.Error
        # UnicodeError and OverflowError: sqlite3 cannot bind half a surrogate pair, or more than 64 bits.
        self._failures = (SQLAlchemyError, self._driver_error, UnicodeError, OverflowError)

    def read(self, doing: str, work: Callable[[Connection], Result]) -> Result:
        """`work` runs in its own snapshot, and may be called again on another connection.

        Raises: SourceError, without the driver's message; Interrupted.
        """
        return self._tried(doing, partial(self._once, work))

    def rows(self, doing: str, statement: sa.TextClause, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """All rows of one statement in its own snapshot, by the driver alone: SQLAlchemy's part would take longer than
        a short statement.

        Raises: as `read`.
        """
        assert self._admit is of_the_source
        return self._tried(doing, partial(self._rows, statement, params))

    def _tried(self, doing: str, once: Callable[[], Result]) -> Result:
        try:
            return self._retry.call(doing, once, self._can_pass, partial(self._gave_up, doing))
        except LongAnswerError:
            raise LongAnswerError(f"{self.place}: {doing}: {shared.long_answer()}") from None
        except self._failures as error:
            raise self._as_source_error(error, doing) from None

    def close(self) -> None:
        self.engine.dispose()

    def before_fork(self) -> None:
        """No connection to a file may be open in two processes."""
        if self.kind.is_file:
            self.engine.dispose()

    def after_fork(self, *, in_child: bool) -> None:
        """A child keeps its parent's connections unused: closing them would end the parent's sessions."""
        if in_child:
            self._inherited.append(self.engine.pool)
            self.engine.dispose(close=False)

    def _once(self, work: Callable[[Connection], Result]) -> Result:
        with self.engine.connect() as connection:
            self._reached = True
            try:
                self._admit(connection)
                return work(connection)
            except BaseException as error:
                self._end(connection, error)
                raise

    def _rows(self, statement: sa.TextClause, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        sql, names, places = _compiled(statement, self.engine.dialect)
        if not names <= params.keys():
            raise sa.exc.InvalidRequestError("A value is required for bind parameter")
        borrowed = self.engine.raw_connection()
        self._reached = True
        try:
            # One SELECT of a file is a snapshot without BEGIN.
            cursor = borrowed.cursor() if self.kind.is_file else begin_reading(self.engine, borrowed)
            cursor.execute(sql, params if places is None else tuple(params[name] for name in places))
            return list(cursor.fetchall())
        except BaseException as error:
            self._end(borrowed, error)
            if not isinstance(error, self._driver_error):
                raise
            raise sa.exc.DBAPIError.instance(sql, None, error, Exception, hide_parameters=True) from None
        finally:
            borrowed.close()

    def _end(self, borrowed: Connection | PoolProxiedConnection, error: BaseException) -> None:
        """End a connection that is lost, or in the middle of an answer, so that no other statement can follow."""
        if is_broken(error):
            # The pool's other connections are also lost if the server restarted.
            self.engine.dispose()
        elif isinstance(error, Exception) and not isinstance(error, LongAnswerError):
            return
        borrowed.invalidate()

    def _can_pass(self, error: BaseException) -> bool:
        """Whether to retry: only for a server that was reached, or that answered itself, not for a wrong URL."""
        return is_busy(error) or (self._reached and (is_broken(error) or is_of_a_file(error)))

    def _gave_up(self, doing: str, error: BaseException, tried: str) -> SourceError:
        return self._as_source_error(error, doing, f" (gave up after {tried})")

    def _as_source_error(self, error: BaseException, doing: str, tried: str = "") -> SourceError:
        return source_error(error, self.place, doing, tried)


# ── Rows of a statement, all or only the first ones ──

_STREAMED = {"stream_results": True, "max_row_buffer": 100}


def first_rows(
    connection: Connection,
    statement: sa.Executable,
    params: Mapping[str, Any] | None = None,
    at_most: int | None = None,
) -> list[tuple[Any, ...]]:
    """The driver's own tuples: SQLAlchemy's Row would cost more than reading them.

    `at_most`: maximum rows, plus one if there are more; the others are not read.
    """
    with connection.execute(
        statement, params, execution_options={} if at_most is None else _STREAMED
    ) as result:
        if not isinstance(result, sa.CursorResult) or result.cursor is None:
            raise sa.exc.ResourceClosedError("the statement does not return rows")
        if at_most is None:
            return list(result.cursor.fetchall())
        # Not the driver's cursor: a streamed result has already taken the first rows from it.
        rows = [tuple(row) for row in result.fetchmany(at_most + 1)]
        if len(rows) > at_most and engine_at(connection).server.sends_to_the_end:
            _leave(connection)
        return rows


@lru_cache(1_000)
def _compiled(
    statement: sa.TextClause, dialect: sa.Dialect
) -> tuple[str, frozenset[str], Sequence[str] | None]:
    """The statement in the driver's form, its parameters, and their order if they have no names there."""
    compiled = statement.compile(dialect=dialect)
    return str(compiled), frozenset(compiled.params), getattr(compiled, "positiontup", None)


def _leave(connection: Connection) -> None:
    """End the connection, and with it the remaining answer, which reuse would have to read."""
    unread = getattr(connection.connection.driver_connection, "_result", None)
    connection.invalidate()
    if unread is not None:
        # The cursor would otherwise wait for the answer's end on a closed connection.
        unread.unbuffered_active = False


# ── Row trees out of the rows that a page's SELECTs gave ──

_Rows = Sequence[tuple[Any, ...]]


def key_reader(plan: EntityPlan) -> Callable[[Sequence[Any]], Key]:
    positions = _key_places(plan)
    if len(positions) == 1:
        (only,) = positions
        return lambda row: (row[only],)
    return operator.itemgetter(*positions)


def _key_places(plan: EntityPlan) -> tuple[int, ...]:
    places = {slot.column.real: position for position, slot in enumerate(plan.slots) if slot.alias == ""}
    return tuple(places[column.real] for column in plan.key)


def _same(key: Key) -> Key:
    """Key values that compare as in PostgreSQL: NaN equals NaN, and times of two zones differ."""
    return tuple(
        "NaN" if value != value else value.isoformat() if isinstance(value, time) else value for value in key
    )


def _sameness(plan: EntityPlan) -> Callable[[Key], Key]:
    names = {column.kind.name for column in plan.key}
    return tuple if names <= {"integer", "text", "uuid", "date", "timestamp"} else _same


def row_trees(plan: EntityPlan, roots: _Rows, collected: Sequence[_Rows]) -> list[RowTree]:
    """`collected`: the rows of each collection's SELECT.

    A root without children has () for a list, 0 for a count and NULL for a sum, a minimum or a maximum.
    """
    width, same = len(plan.key), _sameness(plan)
    # A single value represents itself, without a tuple and a call for each row.
    name_of: Callable[[Any], Any] = operator.itemgetter(*_key_places(plan))
    name_of_child: Callable[[Any], Any] = operator.itemgetter(0)
    if width > 1 or same is not tuple:
        name_of = partial(_name, key_reader(plan), same)
        name_of_child = partial(_name, operator.itemgetter(slice(width)), same)
    names = list(map(name_of, roots))
    parts = []
    for collection, rows in zip(plan.collections, collected, strict=True):
        children, none = _by_root(width, collection, rows, name_of_child), _of_none(collection)
        parts.append([children.get(name, none) for name in names])
    owned = zip(*parts, strict=True) if parts else repeat(())
    return [(*row, *own) for row, own in zip(roots, owned, strict=False)]


def twins_of(plan: EntityPlan, roots: _Rows) -> dict[Key, int]:
    # For a key of one column the values suffice, without tuples: this runs for each page of each run.
    if len(set(_at(roots, _key_places(plan)))) == len(roots):
        return {}
    counts = Counter(map(partial(_name, key_reader(plan), _sameness(plan)), roots))
    return {key_values: count for key_values, count in counts.items() if count > 1}


def _at(rows: _Rows, places: tuple[int, ...]) -> Iterable[Any]:
    return rows.values(places) if isinstance(rows, InPlace) else map(operator.itemgetter(*places), rows)


def rows_read(plan: EntityPlan, trees: Sequence[RowTree]) -> int:
    numbered = enumerate(plan.collections, len(plan.slots))
    lists = [place for place, collection in numbered if collection.collection.is_list]
    return len(trees) + sum(sum(map(len, map(operator.itemgetter(place), trees))) for place in lists)


def _name(key: Callable[[Sequence[Any]], Key], same: Callable[[Key], Key], row: Sequence[Any]) -> Key:
    return same(key(row))


def _by_root(
    width: int, collection: CollectionPlan, rows: _Rows, name_of: Callable[[tuple[Any, ...]], Any]
) -> dict[Any, Any]:
    if not collection.collection.is_list:
        return {name_of(row): row[width] for row in rows}
    children: dict[Any, list[tuple[Any, ...]]] = defaultdict(list)
    rest: Callable[[tuple[Any, ...]], tuple[Any, ...]] = operator.itemgetter(slice(width, None))
    # A root's rows stand together; not where a collation takes two keys for one.
    for name, rows_of_root in groupby(rows, name_of):
        children[name].extend(map(rest, rows_of_root))
    return {name: tuple(rows_of_root) for name, rows_of_root in children.items()}


def _of_none(collection: CollectionPlan) -> Any:
    return {"list": (), "climb": (), "count": 0}.get(collection.collection.kind)


# ── Transactions that write ──


class Committing(Reading):
    """`read` also writes and commits. `needs`: what writes here, for the message of a standby."""

    needs = "capture"

    def _once(self, work: Callable[[Connection], Result]) -> Result:
        with self.engine.begin() as connection:
            self._reached = True
            return work(connection)

    def _as_source_error(self, error: BaseException, doing: str, tried: str = "") -> SourceError:
        if not takes_no_writes(error):
            return super()._as_source_error(error, doing, tried)
        what = f"this database takes no writes (a standby, or read-only), and {self.needs} needs them"
        return SourceError(f"{self.place}: {doing}: {what}; name its primary in the source's URL")

    def _can_pass(self, error: BaseException) -> bool:
        return is_contended(error) or super()._can_pass(error)


class Writing(Committing):
    """Every method of Marks and Tickets is idempotent, so a broken one is retried.

    `reading_engine`: for reads, so that a read-only source can be inspected, and nothing connects for writing
    before the first write.
    """

    def __init__(
        self,
        address: Address,
        connection_options: ConnectionOptions,
        retry: Retry,
        reading_engine: Engine | None = None,
    ) -> None:
        super().__init__(
            write_engine(address, connection_options), place_of(address.url()), retry, of_the_source
        )
        self._owns_reading = reading_engine is None
        engine = reading_engine or read_engine(address, replace(connection_options, pool_size=1))
        self._capture_reading = _CaptureReading(engine, self.place, retry, of_the_source)
        self._ddl: Ddl | None = None

    def read(self, doing: str, work: Callable[[Connection], Result]) -> Result:
        """Read-only; on a file, in a transaction without other open writes.

        Raises: as `write` does.
        """
        return super().read(doing, work) if self.kind.is_file else self._capture_reading.read(doing, work)

    def look(self, doing: str, work: Callable[[Connection, Ddl], Result]) -> Result:
        """Read only. Raises: as `write` does."""
        return self._with_ddl(self._capture_reading.read, doing, work)

    def write(self, doing: str, work: Callable[[Connection, Ddl], Result]) -> Result:
        """Write and commit. Raises: SourceError, in our own words; Interrupted."""
        return self._with_ddl(super().read, doing, work)

    def at_once(self) -> Writing:
        other = copy(self)
        other._retry = Retry(Backoff(attempts=1), self._retry.stop)
        other._capture_reading = _CaptureReading(
            self._capture_reading.engine, self.place, other._retry, of_the_source
        )
        return other

    def close(self) -> None:
        super().close()
        if self._owns_reading:
            self._capture_reading.close()

    def ddl(self, connection: Connection) -> Ddl:
        """The dialect's statements. On MySQL our tables are in the database in the URL."""
        if self._ddl is None:
            self._ddl = self.kind.capturing.ddl(connection)
        return self._ddl

    def _with_ddl(
        self, read: Callable[..., Any], doing: str, work: Callable[[Connection, Ddl], Result]
    ) -> Result:
        try:
            result: Result = read(doing, lambda connection: work(connection, self.ddl(connection)))
            return result
        except MissingNameError:
            what = f"{self.place}: {doing}: capture is not installed here, or by another version of migrator"
            raise SourceError(f"{what}; run `migrator capture install` with this job") from None


class _CaptureReading(Reading):
    """A Reading that also retries lock conflicts, as writes do."""

    def _can_pass(self, error: BaseException) -> bool:
        return is_contended(error) or super()._can_pass(error)
