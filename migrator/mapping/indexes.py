"""What stands in the key attributes of an index, item by item: written for it, or there for another reason."""

from __future__ import annotations

from collections.abc import Mapping as Dict

from migrator.model import Entity, Expression, Index, ItemDesign, Ref, TableDesign


def index_values(
    table: TableDesign, entity: Entity, design: ItemDesign, index: Index
) -> tuple[Expression, ...]:
    """What stands in each key attribute of the index, in its order; () where the item is never in it.

    An attribute that is a key of the table, or a plain attribute of the item, stands in the index by its name.
    A column that `keep: all` may mean counts as there.
    """
    own = next((entry.values for entry in design.entries if entry.index == index.name), ())
    written: dict[str, Expression] = dict(_plain(entity, design, index))
    written |= zip((attribute.name for attribute in table.key), design.key, strict=False)
    written |= zip((attribute.name for attribute in index.own_attributes(table)), own, strict=False)
    found = [written.get(attribute.name) for attribute in index.attributes]
    return tuple(one for one in found if one is not None) if None not in found else ()


def _plain(entity: Entity, design: ItemDesign, index: Index) -> Dict[str, Expression]:
    names = {attribute.name for attribute in index.attributes}
    kept = (
        names if design.keep == "all" else names & set(design.keep if isinstance(design.keep, tuple) else ())
    )
    columns: dict[str, Expression] = {name: Ref((name,)) for name in kept - set(design.keep_except)}
    return columns | {
        name: value for name, value in {**entity.attributes, **design.attributes}.items() if name in names
    }
