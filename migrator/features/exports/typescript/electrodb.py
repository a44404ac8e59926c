"""A mapping's items and access patterns as a TypeScript module for ElectroDB (electrodb 3).

Key attributes are attributes of the entity, each the whole of its index key, and the functions `…Keys` make them:
`entity.put({ ...trackKeys(track), ...track })`. ElectroDB's own templates pad by attribute, so that a number that is padded
in one key and bare in another would be written wrong in one of them; and it asks for the table's key before any `set`.
Source: electrodb.dev, "Use an attribute as an index key"; its clauses.js for the order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from migrator.features.exports.file import comment, template
from migrator.features.exports.model import Model
from migrator.features.exports.typescript.keys import Around, Item, Refusals, UnsayableError, item_of
from migrator.features.exports.typescript.language import (
    INHERITED,
    Identifiers,
    commented,
    helpers_of,
    listed,
    member,
    property_,
    quoted,
    runtime_names,
    type_of,
)
from migrator.features.exports.typescript.patterns import Asked, asked_of, checked_type, param_type
from migrator.mapping.model.table import Index, TableDesign

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def electrodb_typescript(model: Model, head: Sequence[str]) -> str:
    """Raises: SettingsError naming all that ElectroDB cannot say."""
    refusals, names = Refusals(), Identifiers(runtime_names())
    maps = {name: f"MAP_{number}" for number, name in enumerate(model.maps, 1)}
    around = Around(model.table.separator, maps, model.timezone)
    items = vocabulary(model, names, around, refusals)
    _refuse(model.table, items, refusals)
    asked = _asked(model, names, around, refusals)
    refusals.check()
    values = {"model": model, "table": model.table, "maps": maps, "items": items, "patterns": asked}
    functions = {"fields_of": fields_of, "indexes_of": indexes_of, "places": _places(model.table, items)}
    code = template(__package__, "electrodb.ts.j2", **_FILTERS).render(values | functions)
    head_, code = comment("//", head), code.strip()
    helpers = "\n\n".join(helpers_of(code))
    crypto = 'import { createHash } from "node:crypto";\n' if "createHash(" in helpers else ""
    return f"{head_}\n{crypto}{code}\n\n{_HELPERS}\n\n{helpers}\n"


_FILTERS: Mapping[str, Callable[..., str]] = {
    "quoted": quoted,
    "listed": listed,
    "property": property_,
    "member": member,
    "commented": commented,
    "type_of": type_of,
    "checked_type": checked_type,
    "param_type": param_type,
}
_HELPERS = "// ── what the functions above are made of ──"


# ── items ──


def vocabulary(model: Model, names: Identifiers, around: Around, refusals: Refusals) -> list[Item]:
    """The item types under their names in TypeScript."""
    items: dict[str, Item] = {}
    for row, item in ((each, item) for each in model.rows for item in each.items):
        if item.name in items:
            where = f"{row.entity.written}.items.{item.name}"
            refusals.add(where, "several entities or schemas make items of this type")
            continue
        type_ = names.type(item.name)
        keys = names.function(f"{type_} keys")
        items[item.name] = item_of(model, row, item, type_, keys, around, refusals)
    return list(items.values())


@dataclass(frozen=True)
class Field:
    """An attribute of an item as it is stored."""

    type: str
    required: bool


def fields_of(table: TableDesign, item: Item) -> dict[str, Field]:
    """All attributes that an item has, but for migrator's own."""
    own = item.made
    fields = {part.name: Field(part.type, True) for part in item.base}
    fields[table.type_attribute] = Field(quoted(own.name), True)
    fields |= {name: Field(part.type, False) for name, part in item.parts.items() if name not in fields}
    for attribute in own.attributes:
        type_ = "unknown" if attribute.stored is not None else type_of(attribute.kind)
        fields.pop(attribute.name, None)
        fields[attribute.name] = Field(type_, attribute.required)
    if own.expiry and table.ttl:
        fields.setdefault(table.ttl, Field("number", False))
    return fields


def indexes_of(table: TableDesign, item: Item) -> dict[str, Index]:
    """The table and those of its indexes of whose keys the item has all attributes, as ElectroDB calls them."""
    names = set(fields_of(table, item))
    found = {index.name: index for index in table.indexes if {key.name for key in index.attributes} <= names}
    primary = table.asked(None)
    assert primary is not None, "the table is an index without a name"
    return {"primary": primary, **found}


def _places(table: TableDesign, items: Sequence[Item]) -> Mapping[str, str]:
    """By index an item type that is in it, through whose entity it is asked."""
    found: dict[str, str] = {}
    for item in items:
        found = dict.fromkeys(indexes_of(table, item), item.made.name) | found
    return found


def _refuse(table: TableDesign, items: Sequence[Item], refusals: Refusals) -> None:
    for index in table.indexes:
        if _is_wide(index):
            refusals.add(f"table.indexes.{index.name}", "a key of several attributes")
    for where, name in (
        (f"{item.made.name}.{name}", name) for item in items for name in fields_of(table, item)
    ):
        if name in INHERITED:
            refusals.add(where, "every object of JavaScript has a property of this name")
        if not _NAME.fullmatch(name):
            refusals.add(where, "ElectroDB puts this name into expressions as it stands")
    for key in table.key:
        if key.type != "text":
            refusals.add(f"table.key.{key.name}", f"ElectroDB's keys are asked as texts here, not {key.type}")
    if not items:
        refusals.add("entities", "there is no item type")


def _is_wide(index: Index) -> bool:
    return len(index.partition) > 1 or len(index.sort) > 1


def _asked(model: Model, names: Identifiers, around: Around, refusals: Refusals) -> list[Asked]:
    found = []
    for pattern in model.patterns:
        if _is_wide(pattern.index):
            continue  # the index itself is refused
        name = pattern.pattern.name
        try:
            found.append(asked_of(pattern, names.function(name), names.type(name), around))
        except UnsayableError as error:
            refusals.add(f"access_patterns.{name}", str(error))
    return found
