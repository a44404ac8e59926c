"""Encoded writes of a fake by its writes of items."""

from __future__ import annotations

from collections.abc import Sequence

from migrator.mapping.model.live import Outcome
from migrator.mapping.model.table import EncodedItem, Item
from migrator.stages.backfill.inserts import items_of


class ByItems:
    """The part of a ConditionalStore that takes items as JSON."""

    def write(self, items: Sequence[Item], *, fresh: bool = False) -> list[Outcome]:
        raise NotImplementedError

    def write_together(self, groups: Sequence[Sequence[Item]]) -> list[Outcome]:
        raise NotImplementedError

    def insert_encoded(self, items: Sequence[EncodedItem]) -> list[Outcome]:
        assert len({key for key, *_ in items}) == len(items)
        return _not_stored(self.write(items_of(items), fresh=True))

    def write_encoded(
        self, items: Sequence[tuple[str, EncodedItem]], ticket: int, *, fresh: bool = False
    ) -> list[Outcome]:
        plain = items_of([item for _, item in items])
        assert [(item["_src"], item["_tk"]) for item in plain] == [(source, ticket) for source, _ in items]
        return _not_stored(self.write(plain, fresh=fresh))

    def write_encoded_together(
        self, groups: Sequence[tuple[str, Sequence[EncodedItem]]], ticket: int
    ) -> list[Outcome]:
        plain = [items_of(items) for _, items in groups]
        for (source, _), group in zip(groups, plain, strict=True):
            assert {(item["_src"], item["_tk"]) for item in group} == {(source, ticket)}
        return _not_stored(self.write_together(plain))


def _not_stored(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.verdict != "stored"]
