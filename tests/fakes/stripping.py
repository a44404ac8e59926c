"""Our attributes and items taken out of a table in memory; it passes the contract tests of the real one."""

from __future__ import annotations

from collections.abc import Sequence

from migrator.mapping.model.table import Item
from tests.fakes.store import FakeStore


class FakeStripping:
    """model.edges.Stripping. `asked`: how many items each call gave."""

    def __init__(self, store: FakeStore) -> None:
        self.store = store
        self.asked: list[int] = []

    def strip(self, items: Sequence[Item]) -> int:
        self.store.check()
        self.asked.append(len(items))
        return sum(self._strip(item) for item in items)

    def remove(self, own: Sequence[Item]) -> int:
        self.store.check()
        design = self.store.design
        return self.store.delete_if(own, [design.type_attribute])

    def own(self, items: Sequence[Item]) -> int:
        self.store.check()
        design = self.store.design
        there = [(self.store.items.get(design.key_of(item)), item) for item in items]
        owned = [
            (stored, item)
            for stored, item in there
            if stored is not None and stored.get(design.ticket_attribute, 0) <= item[design.ticket_attribute]  # type: ignore[operator]
        ]
        for stored, item in owned:
            stored |= {name: item[name] for name in design.own_attributes}
        return len(owned)

    def _strip(self, item: Item) -> bool:
        design = self.store.design
        there = self.store.items.get(design.key_of(item))
        source = design.source_attribute
        if there is None or there.get(source, item[source]) != item[source]:
            return False
        for name in design.own_attributes:
            there.pop(name, None)
        return True
