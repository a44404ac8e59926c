"""One round of a refresh: a ticket, what was read with it, and what came of writing that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from migrator.errors import StoppedError
from migrator.mapping.keys import split_source
from migrator.model import TOMBSTONE, Item, ItemKey, TableDesign
from migrator.ports.live import Outcome, Root


@dataclass(slots=True)
class Written:
    """What came of one item: whose it is, where it stands, and whether it was put or buried."""

    outcome: Outcome
    root: Root
    key: ItemKey
    is_put: bool


def written_of(outcome: Outcome, table: TableDesign) -> Written:
    item = outcome.item
    root = split_source(str(item[table.source_attribute]))
    return Written(outcome, root, table.key_of(item), item[table.type_attribute] != TOMBSTONE)


class UnwrittenError(StoppedError):
    """The table took other items, and some not. `roots`: whose those are; `items`: their keys, each with why."""

    def __init__(self, unwritten: Sequence[Written]) -> None:
        self.items = {one.key: one.outcome.why for one in unwritten}
        self.roots = frozenset(one.root for one in unwritten)
        whys = "; ".join(sorted(set(self.items.values())))
        super().__init__(f"the table does not take an item of its rows: {whys}")


def refuse_unwritten(written: Sequence[Written]) -> None:
    """Raises: UnwrittenError where an item was not taken."""
    unwritten = [one for one in written if one.outcome.verdict == "unwritten"]
    if unwritten:
        raise UnwrittenError(unwritten)


@dataclass
class Round:
    """`told`: keys that each root had. `states`: the items that it has. `recalled`: keys that were intended for it before.

    `withheld`: keys that were fine, in groups that were not written.
    """

    ticket: int
    told: Mapping[Root, set[ItemKey]]
    states: dict[Root, dict[ItemKey, Item]]
    recalled: dict[Root, frozenset[ItemKey]] = field(default_factory=dict)
    written: list[Written] = field(default_factory=list)
    withheld: set[tuple[Root, ItemKey]] = field(default_factory=set)

    def stale(self) -> Iterator[tuple[Root, ItemKey]]:
        """Keys that a root had and has not, in one order, so that a schedule can be replayed."""
        for root, items in self.states.items():
            had = {*self.told[root], *self.recalled.get(root, ())} - items.keys()
            yield from ((root, key) for key in sorted(had, key=repr))
