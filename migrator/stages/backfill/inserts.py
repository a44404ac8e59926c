"""How a backfill writes a page beside other writers, with items that each entity's generated function encodes.

They are inserted where nothing is. What is there already is put under rule 3's condition as an item, and what comes of that
is followed as on the path that has items. That path takes an entity whose keys are remembered (rule 7) or written in one
transaction: both look into items before they are sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from migrator.mapping.items.encoder import Encoder, compile_encoder, encode_page
from migrator.mapping.items.items import CompiledEntity, row_key
from migrator.mapping.items.wire import decode_item
from migrator.mapping.model.live import Outcome
from migrator.mapping.model.table import EncodedItem, Item
from migrator.stages.backfill.encoded import EncodedPath, encoders_of
from migrator.stages.backfill.only import keys_by_root
from migrator.stages.backfill.write import (
    ConcurrentWriter,
    ConditionalPath,
    Copied,
    PagePath,
    Read,
    follow,
    roots_refused,
)
from migrator.stages.live.refresh import drawn
from migrator.stages.live.send import TransactionGroups, send


@dataclass(frozen=True)
class Inserting:
    """Writes a page's items on the conditional path."""

    path: ConditionalPath

    def __call__(self, encoder: Encoder, read: Read) -> Copied:
        return self.path.copied(self._written(encoder, read))

    def _written(self, encoder: Encoder, read: Read) -> ConcurrentWriter:
        """Reads a page with a ticket of its own and inserts what is not there yet (rules 2 and 3)."""
        refresh, entity = self.path.refresh, encoder.entity
        ticket = drawn(refresh.tickets, refresh.memory, refresh.control)
        rows = read.raw(encoder.raw)
        encoded = encode_page(encoder, rows, ticket, refresh.clock())
        outcomes = self._sent(encoded.items)
        page = ConcurrentWriter(
            encoded.rows,
            [(key, size) for key, _, size, _ in encoded.items],
            encoded.expired,
            encoded.refused,
            {(entity.name, row_key(entity, row)): ticket for row in rows.rows},
        )
        again = roots_refused(entity, encoded.refused)
        follow(
            refresh,
            page,
            ticket,
            outcomes,
            again,
            lambda: keys_by_root(refresh.table, items_of(encoded.items)),
        )
        return page

    def _sent(self, items: Sequence[EncodedItem]) -> list[Outcome]:
        """Outcomes of the items that are not simply stored."""
        refresh = self.path.refresh
        if len({item[0] for item in items}) < len(items):
            # Two rows make one key: the later one is to meet the item of the first.
            sending = TransactionGroups(live=items_of(items))
            roots = keys_by_root(refresh.table, sending.live).keys()
            return send(refresh.store, sending, refresh.table, refresh.check, fresh=roots)
        if not items:
            return []
        refresh.check()
        return refresh.store.insert_encoded(items)


def items_of(encoded: Sequence[EncodedItem]) -> list[Item]:
    """The items that are encoded."""
    return [decode_item(orjson.loads(attributes)) for _, attributes, _, _ in encoded]


def inserts_where_possible(path: ConditionalPath) -> PagePath:
    """The path with generated functions for the entities whose keys are neither remembered nor written together.

    One that writes a part alone stays as it is: those functions write all of a row.
    """
    if path.only:
        return path
    plain = [
        entity.compiled
        for entity in path.refresh.entities.values()
        if not entity.remembered and not entity.together
    ]

    def compiled(entity: CompiledEntity, offered: frozenset[int]) -> Encoder | None:
        # Not those of the key, by which the rows of a page are named.
        return compile_encoder(entity, offered - frozenset(entity.key_places))

    return EncodedPath(path, encoders_of(path.refresh.rows, plain, compiled), Inserting(path))
