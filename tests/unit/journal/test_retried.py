"""Every transaction of the journal says whether it may be done twice: only so is it tried again while a server is away."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

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


def _transactions() -> Iterator[tuple[str, bool]]:
    """Methods that begin a transaction, and whether they are tried again."""
    for found in pkgutil.walk_packages(room.__path__, "migrator.journal."):
        module = importlib.import_module(found.name)
        for kind in vars(module).values():
            if not inspect.isclass(kind) or kind.__module__ != module.__name__:
                continue
            for name, method in vars(kind).items():
                plain = inspect.unwrap(method) if inspect.isfunction(method) else None
                if plain is not None and plain.__code__.co_filename == module.__file__:
                    text = inspect.getsource(plain)
                    if (
                        "self.database.begin()" in text
                        or "journal.database.begin()" in text
                        or "self._alone()" in text
                    ):
                        yield f"{kind.__name__}.{name}", hasattr(method, "__wrapped__")


def test_every_transaction_is_tried_again_or_says_why_not() -> None:
    found = dict(_transactions())
    assert len(found) > 50
    alone = {name for name, is_tried in found.items() if not is_tried}
    assert alone - {"SqlRevisions._alone"} == set(BY_THEMSELVES)
