"""The row and the item that a finding names, read again and laid side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from migrator.errors import Interrupted, MigratorError, RowError
from migrator.mapping.compare import equal
from migrator.mapping.items import CompiledEntity, items_for
from migrator.mapping.keys import item_key_of
from migrator.model import Item, ItemKey, TableDesign
from migrator.ports import Finding, ItemStore, Rows
from migrator.report_results import Cell
from migrator.stages.report_shown import Showing


@dataclass
class Pairs:
    """`entities`: by name. `failed`: why reading was given up, '' while it was not; nothing is read after that.

    What is shown is how both sides are now: a difference that has gone since shows no cell that differs.
    """

    source: Rows
    store: ItemStore
    entities: Mapping[str, CompiledEntity]
    table: TableDesign
    showing: Showing
    failed: str = ""

    def cells(self, finding: Finding) -> list[Cell] | None:
        """Attribute by attribute what the row makes and what the item has; nothing where there is neither, None where it
        cannot be told."""
        entity = self.entities.get(finding.entity)
        if entity is None or not finding.item_key or self.failed:
            return None
        try:
            key = item_key_of(finding.item_key, self.table)
            expected, stored = self._expected(entity, finding, key), self.store.get([key]).get(key)
        except Interrupted:
            raise
        except MigratorError as error:
            self.failed = str(error)
            return None
        except (ValueError, KeyError, TypeError):
            return None  # the finding is of another mapping: its key has other parts than this table's
        return self._side_by_side(entity, expected, stored)

    def _expected(self, entity: CompiledEntity, finding: Finding, key: ItemKey) -> Item | None:
        rows = self.source.read_rows(entity.plan, [finding.source_key]) if finding.source_key else []
        try:
            made = [item for row in rows for item in items_for(entity, row)]
        except RowError:
            return None
        return next((item for item in made if self.table.key_of(item) == key), None)

    def _side_by_side(self, entity: CompiledEntity, expected: Item | None, stored: Item | None) -> list[Cell]:
        if stored is not None and self.table.is_hidden(stored):
            stored = None
        sql = {} if expected is None else self.showing.item(entity.name, expected)
        item = {} if stored is None else self.showing.item(entity.name, stored)
        return [
            Cell(name, sql.get(name), item.get(name), _differs(name, expected, stored)) for name in sql | item
        ]


def _differs(name: str, expected: Item | None, stored: Item | None) -> bool:
    if expected is None or stored is None or (name in expected) != (name in stored):
        return True
    return not equal(expected[name], stored[name])
