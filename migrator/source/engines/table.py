"""The table of engines, by the name of SQLAlchemy's dialect."""

from __future__ import annotations

from sqlalchemy.engine import Connection
from sqlalchemy.engine import Engine as Connects

from migrator.model.errors import SettingsError
from migrator.source.engines.base import Engine
from migrator.source.engines.mysql.engine import MYSQL
from migrator.source.engines.postgresql.engine import POSTGRESQL
from migrator.source.engines.sqlite.engine import SQLITE

ENGINES: list[Engine] = [SQLITE, POSTGRESQL, MYSQL]
"""A new engine is one more row."""


def engine_of(dialect: str) -> Engine:
    """The engine of a dialect's name. Raises: SettingsError for one that has none, naming those that have."""
    for engine in ENGINES:
        if dialect == engine.name or dialect in engine.also:
            return engine
    known = ", ".join(engine.name for engine in ENGINES)
    what = f"source: there is no engine for the dialect '{dialect}', only for {known}"
    raise SettingsError(f"{what}; name a database of one of these, or add an engine (docs/architecture.md)")


def engine_at(connects: Connection | Connects) -> Engine:
    """The engine that a connection, or what makes connections, belongs to. Raises: as `engine_of`."""
    return engine_of(connects.dialect.name)


def engine_for_scheme(scheme: str) -> Engine | None:
    """The engine whose URLs may begin so, a driver's name left aside; None for an unknown one."""
    kind = scheme.partition("+")[0]
    return next((engine for engine in ENGINES if kind in engine.connecting.schemes), None)
