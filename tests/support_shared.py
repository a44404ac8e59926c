"""What the commands of one test process may share, as nothing of a test is in it: AWS clients and compiled SQL.

A command in a process of its own makes each once; thousands of commands in one process would make them thousands of times.
"""

from __future__ import annotations

import functools
import inspect
import os
from typing import Any

import pytest
from sqlalchemy import Dialect, Engine
from sqlalchemy.util import LRUCache

from migrator.target import client as target_client

_STATEMENTS = 3_000


# ── AWS clients ──


def share_clients(patch: pytest.MonkeyPatch) -> None:
    """A client of an endpoint on this machine is made once for each of its settings, and anew in a forked process."""
    make, made = target_client.service_client, dict[object, Any]()

    @functools.wraps(make)
    def shared(service: str, **words: Any) -> Any:
        if not _is_plain(words):
            return make(service, **words)
        key = (service, os.getpid(), *sorted(words.items()), *_aws_settings())
        if key not in made:
            made[key] = make(service, **words)
        return made[key]

    patch.setattr(target_client, "service_client", shared)


def own_clients(patch: pytest.MonkeyPatch) -> None:
    """Each command makes its clients again, as a test wants it that counts what a command does."""
    patch.setattr(target_client, "service_client", inspect.unwrap(target_client.service_client))


def _is_plain(words: dict[str, Any]) -> bool:
    endpoint = words["endpoint"]
    local = endpoint is not None and target_client.is_loopback(endpoint)
    return local and words["profile"] is None and words.get("role") is None and words["region"] is None


def _aws_settings() -> list[tuple[str, str]]:
    return sorted(
        (name, value)
        for name, value in os.environ.items()
        if name.startswith(("AWS_", "MIGRATOR_LANE")) or name.endswith("_PROXY")
    )


# ── compiled SQL ──


def share_compiled_sql(patch: pytest.MonkeyPatch) -> None:
    """Engines whose dialects are set up alike have one cache of compiled statements; SQLAlchemy gives each its own."""
    statements = LRUCache[Any, Any](_STATEMENTS)

    def take(engine: Engine, cache: object) -> None:
        vars(engine)["compiled"] = None if cache is None else _Compiled(statements)

    def give(engine: Engine) -> Any:
        return vars(engine)["compiled"]

    patch.setattr(Engine, "_compiled_cache", property(give, take), raising=False)


class _Compiled:
    """The cache of one engine. A statement's key begins with the dialect; here with what the dialect is set to."""

    def __init__(self, statements: LRUCache[Any, Any]) -> None:
        self._statements = statements
        self._settings: tuple[object, ...] = ()

    def get(self, key: tuple[Any, ...]) -> Any:
        return self._statements.get(self._shared(key))

    def __setitem__(self, key: tuple[Any, ...], compiled: Any) -> None:
        self._statements[self._shared(key)] = compiled

    def clear(self) -> None:
        self._statements.clear()

    def _shared(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        # Asked at the first statement: the server's version is known when a connection is there.
        self._settings = self._settings or _settings_of(key[0])
        return (self._settings, *key[1:])


_SIMPLE: tuple[type, ...] = (str, int, bool, tuple, type(None))


def _settings_of(dialect: Dialect) -> tuple[object, ...]:
    settings = dict(vars(dialect))  # a copy: another thread may set up the same dialect
    kept = ((name, repr(value)) for name, value in settings.items() if _is_setting(value))
    return (type(dialect), *sorted(kept))


def _is_setting(value: object) -> bool:
    return isinstance(value, _SIMPLE) or (callable(value) and hasattr(value, "__qualname__"))
