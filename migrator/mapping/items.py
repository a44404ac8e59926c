"""The heart: the one place where a row becomes items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from migrator.errors import RowError
from migrator.facts import CollectionPlan, EntityPlan, Kind
from migrator.limits import ITEM_BYTES, PARTITION_KEY_BYTES, SORT_KEY_BYTES
from migrator.mapping.expressions import (
    Compiled,
    Places,
    Row,
    compile_conditions,
    compile_key,
    compile_values,
)
from migrator.mapping.filters import Surroundings, epoch_seconds
from migrator.mapping.keys import encode_key, source_text
from migrator.mapping.sizes import item_bytes, value_bytes
from migrator.mapping.values import Decoder, attribute, decoder
from migrator.model import Index, Item, ItemDesign, Mapping, RowTree, SourceKey, TableDesign


@dataclass(frozen=True)
class CompiledEntity:
    """An entity as functions. Made once by `compile_entity`, safe to share between threads."""

    plan: EntityPlan
    table: TableDesign
    decode: Callable[[RowTree], Row]
    key_places: tuple[int, ...]
    makers: tuple[Callable[[Row, str], Item | None], ...]

    @property
    def name(self) -> str:
        return self.plan.entity.name

    def source_key(self, row: RowTree) -> SourceKey:
        """The root row's key as text, from the values as the driver gave them."""
        return encode_key([row[place] for place in self.key_places])


def items_for(entity: CompiledEntity, row: RowTree) -> list[Item]:
    """The items that one row tree becomes: none, one or several.

    Pure: the same row tree gives the same items, always. Items carry `_src` and `_rev`; the ticket is the
    stage's to add. An item with a TTL that has passed is given all the same.
    Raises: RowError when the row is refused: a NULL in a base key, a value that its column's type does not
    allow, a key or an item over DynamoDB's limits.
    """
    try:
        source = source_text(entity.name, entity.source_key(row))
        decoded = entity.decode(row)
    except (RowError, TypeError) as error:
        raise RowError(f"{entity.name}: {error}") from None
    made = [make(decoded, source) for make in entity.makers]
    return [item for item in made if item is not None]


def compile_entity(mapping: Mapping, plan: EntityPlan) -> CompiledEntity:
    """The entity's functions. The plan must be free of faults (see check.py)."""
    around = Surroundings(mapping.table.separator, mapping.maps, mapping.timezone)
    places = _places(plan)
    names = {slot.path: number for number, slot in enumerate(plan.slots)}
    return CompiledEntity(
        plan=plan,
        table=mapping.table,
        decode=_decode(plan),
        key_places=tuple(names[column.name] for column in plan.key),
        makers=tuple(_maker(mapping, plan, item, places, around) for item in plan.entity.items),
    )


# ── row trees ───────────────────────────────────────────────────────────────────────────────────


def _places(plan: EntityPlan) -> Places:
    columns = {slot.path: number for number, slot in enumerate(plan.slots)}
    lists = {}
    for number, one in enumerate(plan.collections, start=len(plan.slots)):
        if one.collection.kind == "list":
            inner = {slot.path: place for place, slot in enumerate(one.slots)}
            lists[one.collection.alias] = (number, Places(inner, {}))
        else:
            columns[one.collection.alias] = number
    return Places(columns, lists)


def _decode(plan: EntityPlan) -> Callable[[RowTree], Row]:
    steps = [(slot.path, decoder(slot.column.kind)) for slot in plan.slots]
    steps += [(one.collection.alias, _collection_decoder(one)) for one in plan.collections]
    return _row_decoder(steps)


def _row_decoder(steps: Sequence[tuple[str, Decoder]]) -> Callable[[Sequence[Any]], Row]:
    def decode(row: Sequence[Any]) -> Row:
        decoded: list[Any] = []
        try:
            for (_, step), raw in zip(steps, row, strict=True):
                decoded.append(step(raw))
        except RowError as error:
            raise RowError(f"column {steps[len(decoded)][0]}: {error}") from None
        return decoded

    return decode


def _collection_decoder(one: CollectionPlan) -> Decoder:
    collection = one.collection
    if collection.kind == "count":
        return decoder(Kind("integer"))
    if collection.kind != "list":
        return decoder(one.column.kind if one.column else Kind("unknown"))
    decode = _row_decoder([(slot.path, decoder(slot.column.kind)) for slot in one.slots])

    def children(raw: Sequence[RowTree]) -> list[Row]:
        if collection.at_most is not None and len(raw) > collection.at_most:
            raise RowError(f"more than {collection.at_most} children (at_most)")
        return [decode(child) for child in raw[: collection.first]]

    return children


# ── items ───────────────────────────────────────────────────────────────────────────────────────


def _maker(
    mapping: Mapping, plan: EntityPlan, design: ItemDesign, places: Places, around: Surroundings
) -> Callable[[Row, str], Item | None]:
    """A function from a decoded row and its `_src` to the item, or None where `when` does not hold."""
    table = mapping.table
    at = f"{plan.entity.name}.{design.type}"
    when = compile_conditions(design.when, places)
    base = _base_key(table, design, places, around)
    entries = _entries(table, design, places, around)
    attributes = _attributes(plan, design, places, around)
    expiry = _expiry(mapping, design, places)
    fixed = {table.type_attribute: design.type, table.revision_attribute: mapping.revision}

    def make(row: Row, source: str) -> Item | None:
        if when is not None and not when(row):
            return None
        item: Item = {}
        try:
            base(row, item)
            item.update(fixed)
            item[table.source_attribute] = source
            for entry in entries:
                entry(row, item)
            attributes(row, item)
            expiry(row, item)
            _check_size(item)
        except RowError as error:
            raise RowError(f"{at}: {error}") from None
        return item

    return make


Step = Callable[[Row, Item], None]


def _base_key(table: TableDesign, design: ItemDesign, places: Places, around: Surroundings) -> Step:
    parts = [
        (attribute.name, compile_key(template, attribute, places, around), limit)
        for attribute, template, limit in zip(
            table.key, design.key, (PARTITION_KEY_BYTES, SORT_KEY_BYTES), strict=False
        )
    ]

    def step(row: Row, item: Item) -> None:
        for name, get, limit in parts:
            value = get(row)
            if value is None:
                raise RowError(f"{name} has a NULL in it; give the item a when: or the value an |or:")
            item[name] = _checked_key(name, value, limit)

    return step


def _entries(
    table: TableDesign, design: ItemDesign, places: Places, around: Surroundings
) -> tuple[Step, ...]:
    indexes = {index.name: index for index in table.indexes}
    return tuple(
        _entry(
            indexes[entry.index],
            [
                compile_key(template, attribute, places, around)
                for attribute, template in zip(indexes[entry.index].attributes, entry.values, strict=True)
            ],
            compile_conditions(entry.when, places),
        )
        for entry in design.entries
    )


def _entry(index: Index, getters: Sequence[Compiled], when: Callable[[Row], bool] | None) -> Step:
    limits = [PARTITION_KEY_BYTES] * len(index.partition) + [SORT_KEY_BYTES] * len(index.sort)
    parts = [
        (attribute.name, get, limit)
        for attribute, get, limit in zip(index.attributes, getters, limits, strict=True)
    ]

    def step(row: Row, item: Item) -> None:
        if when is not None and not when(row):
            return
        found = {name: (get(row), limit) for name, get, limit in parts}
        if any(value is None for value, _ in found.values()):
            return
        item.update({name: _checked_key(name, value, limit) for name, (value, limit) in found.items()})

    return step


def _checked_key(name: str, value: Any, limit: int) -> Any:
    size = value_bytes(value)
    if size == 0:
        raise RowError(f"{name} is empty; DynamoDB takes no empty key")
    if size > limit:
        raise RowError(f"{name} takes {size} bytes; DynamoDB takes {limit} at most")
    return value


def _attributes(plan: EntityPlan, design: ItemDesign, places: Places, around: Surroundings) -> Step:
    written = {**plan.entity.attributes, **design.attributes}
    kept = [(name, places.columns[name]) for name in kept_columns(plan, design) if name not in written]
    getters = compile_values(written, places, around)

    def step(row: Row, item: Item) -> None:
        for name, place in kept:
            if row[place] is not None:
                item[name] = attribute(row[place])
        name = ""
        try:
            for name, get in getters:
                value = get(row)
                if value is not None:
                    item[name] = value
        except RowError as error:
            raise RowError(f"{name}: {error}") from None

    return step


def kept_columns(plan: EntityPlan, design: ItemDesign) -> tuple[str, ...]:
    """Names of the root's columns that the item keeps under their own names."""
    if design.keep == "none":
        return ()
    if isinstance(design.keep, tuple):
        return design.keep
    return tuple(column.name for column in plan.table.columns if column.name not in design.keep_except)


def _expiry(mapping: Mapping, design: ItemDesign, places: Places) -> Step:
    expiry, name = design.expiry, mapping.table.ttl
    if expiry is None or name is None:
        return lambda row, item: None
    place = places.columns[expiry.path]
    zone = ZoneInfo(mapping.timezone or "UTC")

    def step(row: Row, item: Item) -> None:
        value = row[place]
        if value is not None:
            seconds = value if isinstance(value, int) else epoch_seconds(value, zone)
            item[name] = seconds + expiry.days * 86_400

    return step


def _check_size(item: Item) -> None:
    size = item_bytes(item)
    if size > ITEM_BYTES:
        raise RowError(f"the item takes {size} bytes; DynamoDB takes {ITEM_BYTES} at most")
