"""All that a journal holds of single rows: counted, and deleted when a row is forgotten."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, func, or_, select

from migrator.journal.database import Database, once_only, repeatable
from migrator.journal.memory import root_digest
from migrator.journal.schema import (
    claim,
    claimed_table,
    finding,
    key_request,
    open_finding,
    page,
    remembered_key,
    remembered_root,
    run,
    sample,
)
from migrator.mapping.model.live import Root
from migrator.mapping.model.table import source_text

_Rows: TypeAlias = tuple[Table, ColumnElement[bool]]


class SqlTraces:
    """What a journal holds of rows that are to be forgotten, for one job and one table.

    `kinds` are words for people: findings, claims, contests, remembered keys, samples (all of the job: the rows of
    their values are unknown). `item_keys`: as in findings, of items that the rows had. Every method is one transaction.
    """

    def __init__(self, database: Database, job: str, table_id: str) -> None:
        self.database = database
        self.job = job
        self.table_id = table_id

    @repeatable
    def count(
        self, connection: Connection, roots: Sequence[Root], item_keys: Collection[str] = ()
    ) -> dict[str, int]:
        """How much there is of each kind; kinds of which there is nothing are among them."""
        return {
            kind: sum(_count(connection, *rows) for rows in places)
            for kind, places in self._places(roots, item_keys).items()
        }

    @once_only
    def forget(
        self,
        connection: Connection,
        roots: Sequence[Root],
        kinds: Collection[str],
        item_keys: Collection[str] = (),
        *,
        ticket: int,
    ) -> dict[str, int]:
        """Deletes what there is of these kinds; how much it was. What was remembered with a higher ticket stays."""
        places = self._places(roots, item_keys, ticket)
        if self.database.sqlite:
            # What is deleted is overwritten in the file; a server does that when it cleans up by itself.
            connection.exec_driver_sql("PRAGMA secure_delete=ON").fetchall()
        return {kind: sum(_delete(connection, *rows) for rows in places[kind]) for kind in kinds}

    @repeatable
    def page_bounds(self, connection: Connection, roots: Sequence[Root]) -> int:
        """Pages that begin or end at one of the rows; they stay, for the runs' sake."""
        count = 0
        for name, key in roots:
            bound = or_(page.c.after_key == key, page.c.upto_key == key)
            count += _count(
                connection, page, and_(page.c.entity == name, bound, page.c.run_id.in_(self._runs()))
            )
        return count

    # ── where it stands ──

    def _places(
        self, roots: Sequence[Root], item_keys: Collection[str], ticket: int | None = None
    ) -> dict[str, list[_Rows]]:
        return {
            "findings": [
                *(place for root in roots for place in self._findings(root)),
                *self._findings_of_items(roots, item_keys),
                *((open_finding, self._opened(root)) for root in roots),
            ],
            "claims": [place for root in roots for place in self._claims(root)],
            "contests": [place for root in roots for place in self._contests(root)],
            "remembered keys": [place for root in roots for place in self._remembered(root, ticket)],
            # A sample does not say of which rows its values are.
            "samples": [(sample, sample.c.job == self.job)],
        }

    def _runs(self) -> ColumnElement[int]:
        return select(run.c.id).where(run.c.job == self.job).scalar_subquery()

    def _findings(self, root: Root) -> list[_Rows]:
        """Its own, and those of other rows that name it as the one which makes the same key."""
        name, key = root
        own = and_(finding.c.entity == name, finding.c.source_key == key)
        named = finding.c.owner == source_text(*root)
        return [(finding, and_(finding.c.run_id.in_(self._runs()), or_(own, named)))]

    def _opened(self, root: Root) -> ColumnElement[bool]:
        here, text = root_digest(self.table_id, root), source_text(*root)
        return and_(
            open_finding.c.job == self.job, or_(open_finding.c.root == here, open_finding.c.owner == text)
        )

    def _findings_of_items(self, roots: Sequence[Root], item_keys: Collection[str]) -> list[_Rows]:
        """Those that name an item of the rows, and no row."""
        names = [name for name, _ in roots]
        here = and_(
            finding.c.run_id.in_(self._runs()), finding.c.entity.in_(names), finding.c.source_key == ""
        )
        return [(finding, and_(here, finding.c.item_key == key)) for key in sorted(item_keys)]

    def _claims(self, root: Root) -> list[_Rows]:
        number = select(claimed_table.c.number).where(claimed_table.c.table_id == self.table_id)
        return [
            (
                claim,
                and_(claim.c.table_number == number.scalar_subquery(), claim.c.owner == source_text(*root)),
            )
        ]

    def _contests(self, root: Root) -> list[_Rows]:
        return [(key_request, key_request.c.root == root_digest(self.table_id, root))]

    def _remembered(self, root: Root, ticket: int | None) -> list[_Rows]:
        """The row itself first: a writer that remembers more of it waits there. Then keys that have no row any more."""
        digest = root_digest(self.table_id, root)
        here = remembered_root.c.root == digest
        if ticket is None:
            return [(remembered_root, here), (remembered_key, remembered_key.c.root == digest)]
        root_stays = select(remembered_root.c.root).where(here).exists()
        return [
            (remembered_root, and_(here, remembered_root.c.ticket <= ticket)),
            (remembered_key, and_(remembered_key.c.root == digest, ~root_stays)),
        ]


def _count(connection: Connection, table: Table, here: ColumnElement[bool]) -> int:
    return int(connection.execute(select(func.count()).select_from(table).where(here)).scalar_one())


def _delete(connection: Connection, table: Table, here: ColumnElement[bool]) -> int:
    return int(connection.execute(delete(table).where(here)).rowcount)
