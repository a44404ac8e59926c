"""Direct entities: those that a service writes to the table itself, past SQL, and migrator writes no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from migrator.mapping.check.check import Checked
from migrator.mapping.check.keys import types_read
from migrator.mapping.heart.changes import captured_name, captured_tables
from migrator.model.entities import Mapping
from migrator.model.errors import SettingsError, did_you_mean
from migrator.model.table import Item, TableDesign


@dataclass(frozen=True)
class DirectItems:
    """Items of direct entities: told by the entity that `_src` names, and those without `_src` by their item type."""

    entities: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()

    def has(self, item: Item, table: TableDesign) -> bool:
        owner = item.get(table.source_attribute)
        if isinstance(owner, str):
            return owner.partition(":")[0] in self.entities
        return item.get(table.type_attribute) in self.types


def without_direct(checked: Checked, names: Sequence[str]) -> Checked:
    """The same with the named entities set apart, so that no stage reads or writes them.

    Raises: SettingsError with all that is wrong with the names.
    """
    known = list(checked.mapping.entities)
    faults = [
        f"writes.direct: the mapping has no entity '{name}'{did_you_mean(name, known)}"
        for name in names
        if name not in known
    ]
    direct = tuple(one for one in checked.entities if one.plan.entity.written in names)
    left = tuple(one for one in checked.entities if one.plan.entity.written not in names)
    if names and not left:
        faults.append(
            "writes.direct names every entity, and nothing is left to migrate; see `migrator decommission check`"
        )
    written = {captured_name(one.plan.table): one.plan.entity.written for one in direct}
    for one in left:
        for table in sorted(set(captured_tables([one.plan])) & set(written)):
            reader = one.plan.entity.written
            faults.append(
                f"writes.direct: entity {reader} reads table {table}, which grows old once {written[table]} is written"
                f" past SQL; name {reader}, too"
            )
    if faults:
        raise SettingsError("\n".join(dict.fromkeys(faults)))
    return replace(checked, entities=left, direct=direct)


def direct_items(checked: Checked) -> DirectItems:
    plans = [one.plan for one in checked.direct]
    return DirectItems(
        frozenset(plan.entity.name for plan in plans),
        frozenset(item.type for plan in plans for item in plan.entity.items),
    )


def direct_tables(checked: Checked) -> list[str]:
    """Tables of the source that direct entities alone read, as capture names them."""
    others = captured_tables([one.plan for one in checked.entities])
    return sorted(set(captured_tables([one.plan for one in checked.direct])) - set(others))


def patterns_reading(mapping: Mapping, names: Sequence[str]) -> list[str]:
    """Patterns whose answers are made of items of the named entities."""
    return [name for name, one in mapping.patterns.items() if set(types_read(mapping, one)) & set(names)]
