"""Every transaction of the journal says whether it may be done twice: only so is it tried again while a server is away."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator

import migrator.journal as room

BY_THEMSELVES = {
    "RunLease.__exit__": "a lease that is not given back runs out by itself",
    "RunLease._acquire": "a caller is told of its holder at once",
    "RunLease._renew": "a thread tries it again, for as long as the lease lasts",
    "SqlJournal.probe": "the doctor does not wait",
    "SqlJournal.unwritable": "status does not wait",
    "SqlProcesses.failed": "a process that ends waits for no journal that is away",
    "SqlProcesses.leave": "a process that ends waits for no journal that is away",
}


def _methods() -> Iterator[tuple[str, Callable[..., object]]]:
    for found in pkgutil.walk_packages(room.__path__, "migrator.journal."):
        module = importlib.import_module(found.name)
        for kind in vars(module).values():
            if inspect.isclass(kind) and kind.__module__ == module.__name__:
                for name, method in vars(kind).items():
                    if inspect.isfunction(method) and method.__code__.co_filename.startswith(
                        room.__path__[0]
                    ):
                        yield f"{kind.__name__}.{name}", method


def test_every_transaction_is_retried_or_has_a_reason_not_to() -> None:
    """A method that is decorated gets its transaction; one that begins its own is not tried again."""
    found = dict(_methods())
    assert sum(hasattr(method, "__wrapped__") for method in found.values()) > 50
    begins = {name for name, method in found.items() if "database.begin()" in inspect.getsource(method)}
    assert begins == set(BY_THEMSELVES)
