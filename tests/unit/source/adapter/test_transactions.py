"""Transactions of a service as their events come: a commit in two phases is looked at once, before its first."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.runtime.errors import StoppedError
from migrator.source.adapter.marks import TransactionState, TransactionStates


class Refuses:
    """works.Watcher that lets nothing be committed any more."""

    reads = leaves_any = True

    def begins(self, driver: object) -> None:
        return

    def leaves_marks(self, changed: object) -> bool:
        return True

    def commits(self, connection: Connection, work: TransactionState) -> None:
        raise StoppedError("too late")

    def prepares(self, work: TransactionState) -> None:
        return


def test_prepared_statement_is_committed_despite_others_between() -> None:
    with sa.create_engine("sqlite://").connect() as connection:
        works = TransactionStates(Refuses(), lambda: 0.0)
        works.begin(connection)
        works.prepares(connection, "xid")
        works.commits_twophase(connection, "xid", is_prepared=True)
        works.begin(connection)
        with pytest.raises(StoppedError):
            works.commits_twophase(connection, "xid", is_prepared=False)
