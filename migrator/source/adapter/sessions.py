"""Attaches the adapter to what a service passes in: engines, sessions and session makers, sync or async."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any
from weakref import WeakSet

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.orm import Session, SessionTransaction, scoped_session, sessionmaker
from sqlalchemy.pool import QueuePool

from migrator.mapping.model.live import Change
from migrator.runtime.errors import SettingsError
from migrator.source.adapter.driver import off_loop
from migrator.source.adapter.events import EventHooks
from migrator.source.adapter.transactions import changes

Committed = Callable[[Sequence[Change]], object]
_CONNECTIONS = "migrator_connections"


class Sessions:
    """Attaches the adapter's event hooks. `committed`: called after the commit of each session that changed rows.

    A bare AsyncSession class cannot be listened to: its sessions are those of the whole process.
    """

    def __init__(self, listening: EventHooks, committed: Committed | None = None) -> None:
        self.listening = listening
        self.committed = committed
        self._watched: list[Any] = []

    def attach(self, given: Any) -> None:
        """Raises: SettingsError where it makes no connections, or another adapter listens to it."""
        if isinstance(given, (list, tuple)):
            for member in given:
                self.attach(member)
            return
        engines, sessions = list(_engines_of(given)), _sessions_of(given)
        if not engines and sessions is None:
            what = f"dual_write: a {type(given).__name__} is no engine and makes no sessions"
            raise SettingsError(
                f"{what}; give a sessionmaker, a Session class, a session or an engine, sync or async"
            )
        if sessions is None and self.committed is not None:
            what = (
                f"dual_write: flush follows the commits of sessions, and a {type(given).__name__} makes none"
            )
            raise SettingsError(f"{what}; give a sessionmaker or a session")
        for engine in engines:
            self.listening.attach(engine)
        if sessions is not None and not any(other is sessions for other in self._watched):
            self._watched.append(sessions)
            for name, listener in self._listeners():
                sa.event.listen(sessions, name, listener)

    def detach(self) -> None:
        self.listening.detach()
        for sessions in self._watched:
            for name, listener in self._listeners():
                if sa.event.contains(sessions, name, listener):
                    sa.event.remove(sessions, name, listener)
        self._watched.clear()

    def _listeners(self) -> list[tuple[str, Callable[..., None]]]:
        after = [] if self.committed is None else [("after_commit", self._committed)]
        return [("after_begin", self._began), *after]

    def _began(self, session: Session, _: SessionTransaction, connection: Connection) -> None:
        self.listening.attach_begun(connection)
        session.info.setdefault(_CONNECTIONS, WeakSet()).add(connection)

    def _committed(self, session: Session) -> None:
        for connection in list(session.info.get(_CONNECTIONS, ())):
            changed = self.listening.works.committed(connection)
            if changed and self.committed is not None:
                off_loop(partial(self.committed, changes(changed)))


def connections_at_once(given: Any) -> int | None:
    """The most connections that the given engines may have at once; None where it cannot be known."""
    if isinstance(given, (list, tuple)):
        limits = [connections_at_once(member) for member in given]
        return None if None in limits else sum(limit for limit in limits if limit is not None)
    engines = list(_engines_of(given))
    pools = [engine.pool for engine in engines]
    if not pools or not all(isinstance(pool, QueuePool) for pool in pools):
        return None
    counts = [(pool.size(), pool._max_overflow) for pool in pools if isinstance(pool, QueuePool)]
    return (
        None
        if any(overflow < 0 for _, overflow in counts)
        else sum(size + overflow for size, overflow in counts)
    )


def _sync(given: Any) -> Any:
    """The sync object that an async object of SQLAlchemy's wraps; anything else unchanged."""
    if hasattr(given, "session_factory"):
        return given  # a scoped_session would create a session when asked
    for name in ("sync_engine", "sync_session"):
        if (inner := getattr(given, name, None)) is not None:
            return inner
    return given


def _engines_of(given: Any) -> Iterator[Engine]:
    target = _sync(given)
    if isinstance(target, Engine):
        yield target
    elif isinstance(target, Connection):
        yield target.engine
    options = getattr(getattr(target, "session_factory", target), "kw", None)
    binds = [target.bind] if isinstance(target, Session) else []
    if isinstance(options, dict):
        binds += [options.get("bind"), *(options.get("binds") or {}).values()]
    for bind in binds:
        if bind is not None:
            yield from _engines_of(bind)


def _sessions_of(given: Any) -> Any:
    """The target for session events; None where the object makes no sessions."""
    target = _sync(given)
    if isinstance(target, (Session, sessionmaker, scoped_session)):
        return target
    if isinstance(target, type) and issubclass(target, Session):
        return target
    return _async_sessions(getattr(target, "session_factory", target))


def _async_sessions(maker: Any) -> Any:
    """For an async_sessionmaker, its own class of sync sessions, so that other sessions are not affected."""
    options = getattr(maker, "kw", None)
    if not isinstance(options, dict) or not hasattr(maker, "class_"):
        return None
    base = options.get("sync_session_class") or maker.class_.sync_session_class
    if not base.__dict__.get("_migrator_own"):
        base = type(f"Marked{base.__name__}", (base,), {"_migrator_own": True})
        maker.configure(sync_session_class=base)
    return base
