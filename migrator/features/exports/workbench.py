"""The table as a NoSQL Workbench model, format 3.0: keys, indexes, a facet per item type, and sample items."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from migrator.features.exports.definitions import Definition
from migrator.features.exports.model import ItemType, Model
from migrator.mapping.items.filters import specs_of
from migrator.mapping.items.items import CompiledEntity, items_for
from migrator.mapping.items.wire import encode_item, wire_type
from migrator.mapping.language.redaction import Redaction, mask
from migrator.mapping.model.facts import Column, EntityPlan, Kind, attributes_of
from migrator.mapping.model.mapping import Template, uses_in
from migrator.mapping.model.table import Index, Item, KeyAttribute, RowTree, TableDesign
from migrator.runtime.errors import RowError, SettingsError
from migrator.settings.definition import TYPES

VERSION = "3.0"
SAMPLES = 2
"""Rows that each entity shows."""
_ON_A_DAY = "Jan 01, 2020, 12:00 AM"
"""Instead of the day of the export: the same mapping makes the same file."""


def workbench_file(
    model: Model, definition: Definition, samples: Mapping[str, Sequence[Item]], head: Sequence[str]
) -> str:
    """`samples`: items by type. Raises: SettingsError, with all that the format cannot express."""
    _refuse(model.table)
    table = model.table
    facets = [_facet(table, name, items, samples.get(name, ())) for name, items in model.types.items()]
    data = {
        "TableName": table.name,
        "KeyAttributes": _keys(table.key[:1], table.key[1:]),
        "NonKeyAttributes": [
            {"AttributeName": name, "AttributeType": type_} for name, type_ in _attributes(model).items()
        ],
        "TableFacets": facets,
        "GlobalSecondaryIndexes": [_index(index) for index in table.indexes],
        "DataAccess": {"MySql": {}},
        "BillingMode": definition["BillingMode"],
    }
    if units := definition.get("ProvisionedThroughput"):
        data["ProvisionedCapacitySettings"] = {"ProvisionedThroughput": units}
    metadata = {
        "Author": "migrator",
        "DateCreated": _ON_A_DAY,
        "DateLastModified": _ON_A_DAY,
        "Description": " ".join(head),
        "AWSService": "Amazon DynamoDB",
        "Version": VERSION,
    }
    written = {"ModelName": table.name, "ModelMetadata": metadata, "DataModel": [data]}
    return json.dumps(written, indent=2, ensure_ascii=False) + "\n"


def _refuse(table: TableDesign) -> None:
    faults = [
        f"index {index.name} is a local one"
        if index.local
        else f"the key of index {index.name} has several attributes"
        for index in table.indexes
        if index.local or len(index.partition) > 1 or len(index.sort) > 1
    ]
    if faults:
        what = "; ".join(faults)
        raise SettingsError(
            f"a model of NoSQL Workbench cannot express this: {what}; export it without, or for CloudFormation"
        )


def _keys(partition: Sequence[KeyAttribute], sort: Sequence[KeyAttribute]) -> dict[str, dict[str, str]]:
    named = [("PartitionKey", partition), ("SortKey", sort)]
    return {
        name: {"AttributeName": attribute.name, "AttributeType": TYPES[attribute.type]}
        for name, attributes in named
        for attribute in attributes
    }


def _index(index: Index) -> dict[str, Any]:
    projection: dict[str, Any] = {
        "ProjectionType": {"all": "ALL", "keys": "KEYS_ONLY"}.get(str(index.projection), "INCLUDE")
    }
    if isinstance(index.projection, tuple):
        projection["NonKeyAttributes"] = list(index.projection)
    return {
        "IndexName": index.name,
        "KeyAttributes": _keys(index.partition, index.sort),
        "Projection": projection,
    }


def _facet(
    table: TableDesign, name: str, items: Sequence[ItemType], samples: Sequence[Item]
) -> dict[str, Any]:
    aliases = [alias_of(part.template) for part in items[0].key]
    keys = ("PartitionKeyAlias", "SortKeyAlias")
    return {
        "FacetName": name,
        "KeyAttributeAlias": dict(zip(keys, aliases, strict=False)),
        "TableData": [_wired(item) for item in samples],
        "NonKeyAttributes": list(
            dict.fromkeys(attribute for item in items for attribute in _of_item(table, item))
        ),
        "DataAccess": {"MySql": {}},
    }


def alias_of(template: Template) -> str:
    """The template as written; a single plain reference is its bare name, as people write facets.

    A name in capitals keeps its braces: a facet's PROFILE is a text that all its items share.
    """
    path = template.sole.column if template.sole else ""
    return path if path.isidentifier() and not path.isupper() else template.source


def _of_item(table: TableDesign, item: ItemType) -> list[str]:
    of_indexes = [key.name for entry in item.entries for key in entry.keys]
    ttl = [table.ttl] if table.ttl and item.expiry else []
    return [table.type_attribute, *(attribute.name for attribute in item.attributes), *of_indexes, *ttl]


def _attributes(model: Model) -> dict[str, str]:
    """Types of all attributes but the table's key; of an attribute of two item types, the first one's."""
    table, found = model.table, {model.table.type_attribute: "S"}
    in_indexes = {key.name: TYPES[key.type] for index in table.indexes for key in index.attributes}
    for row in model.rows:
        for item in row.items:
            for attribute in item.attributes:
                kind = attribute.kind or Kind("text")
                found.setdefault(attribute.name, wire_type(kind))
    found |= in_indexes | ({table.ttl: "N"} if table.ttl else {})
    return {name: type_ for name, type_ in found.items() if name not in {key.name for key in table.key}}


def _wired(item: Item) -> dict[str, Any]:
    return json.loads(json.dumps(encode_item(item), default=lambda raw: base64.b64encode(raw).decode()))  # type: ignore[no-any-return]


# ── sample items, made by the mapping of rows that are made up, or of real ones ──


def made_up(entities: Iterable[CompiledEntity], table: TableDesign) -> dict[str, list[Item]]:
    """Items by type; none of a row whose made-up values the mapping refuses."""
    found: dict[str, list[Item]] = {}
    for entity in entities:
        for number in range(1, SAMPLES + 1):
            _add(found, entity, _row(entity.plan, number), table)
    return found


def real(
    entity: CompiledEntity, rows: Iterable[RowTree], table: TableDesign, redaction: Redaction
) -> dict[str, list[Item]]:
    """Items of rows by type, masking values that a pattern redacts; none of a type whose keys contain them."""
    found: dict[str, list[Item]] = {}
    for row in rows:
        _add(found, entity, row, table)
    for design in entity.plan.entity.items:
        if any(redaction.hides_key(entity.plan, template) for template in design.templates):
            found.pop(design.type, None)
        hidden = redaction.hidden(entity.plan, design)
        keys = {
            key.name for key in (*table.key, *(key for index in table.indexes for key in index.attributes))
        }
        if hidden & keys:
            found.pop(design.type, None)
        for item in found.get(design.type, ()):
            item.update({name: mask(str(item[name])) for name in hidden & item.keys()})
    return found


def _add(found: dict[str, list[Item]], entity: CompiledEntity, row: RowTree, table: TableDesign) -> None:
    try:
        items = items_for(entity, row)
    except RowError:
        return
    for item in items:
        shown = {name: value for name, value in item.items() if name not in table.own_attributes}
        found.setdefault(table.type_of(item), []).append(shown)


def _row(plan: EntityPlan, number: int) -> RowTree:
    """A row that meets all conditions, and has an array if a set is made from it."""
    wanted: dict[str, Any] = {
        condition.path: condition.allowed
        for conditions in (plan.entity.where, *(item.when for item in plan.entity.items))
        for condition in conditions
        if condition.allowed
    }
    values = (value for item in plan.entity.items for value in attributes_of(plan, item).values())
    refs = (use.ref for value in values for use in uses_in(value))
    sets = {ref.paths[0] for ref in refs if any(spec.of_array for spec in specs_of(ref))}
    wanted |= {
        slot.path: ("[]",) for slot in plan.slots if slot.path in sets and slot.column.kind.name == "json"
    }
    root = [
        wanted[slot.path][0] if slot.path in wanted else _value(slot.column, number) for slot in plan.slots
    ]
    collections: list[Any] = []
    for collection in plan.collections:
        if collection.collection.is_list:
            collections.append((tuple(_value(slot.column, number) for slot in collection.slots),))
        else:
            is_count = collection.column is None
            collections.append(number if is_count else _value(collection.column, number))  # type: ignore[arg-type]
    return (*root, *collections)


def _value(column: Column, number: int) -> Any:
    return _made(column.kind, column.name, number)


_MADE: Mapping[str, Callable[[int], Any]] = {
    "integer": int,
    "number": Decimal,
    "float": float,
    "boolean": lambda number: number == 1,
    "date": lambda number: date(2020, 1, number),
    "time": lambda number: time(number),
    "timestamp": lambda number: datetime(2020, 1, number),
    "uuid": lambda number: UUID(int=number),
    "binary": lambda number: bytes([number]),
    "json": lambda _: "{}",
    "bits": str,
    "list": lambda _: [],
    "map": lambda _: {},
}


def _made(kind: Kind, name: str, number: int) -> Any:
    maker = _MADE.get(kind.name)
    return f"{name}-{number}"[-(kind.length or 40) :] if maker is None else maker(number)
