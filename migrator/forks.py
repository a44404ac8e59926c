"""What happens when a service forks: connections, locks and threads stay with the parent, the child makes its own."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import ref


class Forked(Protocol):
    """What must know of a fork; a class that inherits from it has nothing to do before."""

    def before_fork(self) -> None:
        return

    def after_fork(self, *, in_child: bool) -> None: ...


_KNOWN: list[ref[Forked]] = []


def tell_of_forks(one: Forked) -> None:
    """Nothing; `one` is told of every fork as long as it lives.

    In the order of these calls: what uses a connection must ask later than who makes it.
    """
    _KNOWN[:] = [kept for kept in _KNOWN if kept() is not None]
    _KNOWN.append(ref(one))


def _living() -> list[Forked]:
    return [one for kept in list(_KNOWN) if (one := kept()) is not None]


def _before() -> None:
    # The other way round: who uses a connection comes to rest before the connection does.
    for one in reversed(_living()):
        one.before_fork()


def _after(*, in_child: bool) -> None:
    for one in _living():
        one.after_fork(in_child=in_child)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before,
        after_in_parent=lambda: _after(in_child=False),
        after_in_child=lambda: _after(in_child=True),
    )
