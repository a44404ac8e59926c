"""items_for(): the one place where a row becomes items, with their keys and S3 objects; and the rows of a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo

from migrator.mapping.items.changes import decided_elsewhere
from migrator.mapping.items.filters import FilterContext, epoch_seconds
from migrator.mapping.items.rows import (
    Compiled,
    Content,
    Places,
    Row,
    compile_conditions,
    compile_key,
    compile_value,
    compile_values,
    content_of,
    places_of,
)
from migrator.mapping.items.transforms import Transform, refused_row_decoder, row_decoder
from migrator.mapping.items.values import attribute, fitting, stored
from migrator.mapping.items.wire import item_bytes, value_bytes
from migrator.mapping.model.facts import EntityPlan, kept_columns
from migrator.mapping.model.journal import Finding
from migrator.mapping.model.mapping import Entity, IndexEntry, ItemDesign, Mapping, Stored
from migrator.mapping.model.table import (
    ITEM_BYTES,
    PARTITION_KEY_BYTES,
    SORT_KEY_BYTES,
    Index,
    Item,
    ItemKey,
    KeyAttribute,
    RowTree,
    SourceKey,
    TableDesign,
    encode_key,
    item_key_text,
    source_text,
)
from migrator.runtime.errors import RowError

# ── The base key of an item, made out of a decoded row ──

Step = Callable[[Row, Item], None]
"""Puts something of the row into the item. Raises: RowError."""


def compile_base_key(table: TableDesign, design: ItemDesign, places: Places, around: FilterContext) -> Step:
    """A step that puts the item's base key into it; it refuses a NULL, an empty key and one that is too long."""
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
            item[name] = checked_key(name, value, limit)

    return step


def checked_key(name: str, value: Any, limit: int) -> Any:
    """The value, if a key of DynamoDB can hold it. Raises: RowError."""
    size = value_bytes(value)
    if size == 0:
        raise RowError(f"{name} is empty; DynamoDB takes no empty key")
    if size > limit:
        raise RowError(f"{name} takes {size} bytes; DynamoDB takes {limit} at most")
    return value


# ── Objects in S3 that the items of an entity point to, as functions of a decoded row ──


def compile_contents(
    entity: Entity, places: Places, around: FilterContext
) -> tuple[Callable[[Row], Content | None], ...]:
    """For each stored attribute of each item a function giving what S3 is to keep; None where nothing."""
    return tuple(
        _content(expression, places, around, compile_conditions(item.when, places))
        for item in entity.items
        for expression in {**entity.attributes, **item.attributes}.values()
        if isinstance(expression, Stored)
    )


def _content(
    stored: Stored, places: Places, around: FilterContext, when: Callable[[Row], bool] | None
) -> Callable[[Row], Content | None]:
    value = compile_value(stored.value, places, around)
    return lambda row: None if when is not None and not when(row) else content_of(value(row), stored.over)


# ── items_for(): the one place where a row becomes items ──


@dataclass(frozen=True)
class CompiledEntity:
    """An entity as functions. Made once by `compile_entity`, safe to share between threads."""

    plan: EntityPlan
    mapping: Mapping
    table: TableDesign
    decode: Callable[[RowTree], Row]
    decode_refused: Callable[[RowTree], Row]
    key_places: tuple[int, ...]
    makers: tuple[Callable[[Row, str], Item | None], ...]
    contents: tuple[Callable[[Row], Content | None], ...] = ()
    keys: tuple[tuple[bool, Callable[[Row, Item], None]], ...] = ()
    """Per item design, whether more than the root row decides if it is there, and what writes its base key."""

    @cached_property
    def name(self) -> str:
        return self.plan.entity.name

    def source_key(self, row: RowTree) -> SourceKey:
        """The root row's key as text, from the values as the driver gave them."""
        return encode_key([row[index] for index in self.key_places])


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
        private = error.private if isinstance(error, RowError) else ""
        raise RowError(f"{entity.name}: {error}", private=private) from None
    made = [make(decoded, source) for make in entity.makers]
    return [item for item in made if item is not None]


def objects_for(entity: CompiledEntity, row: RowTree) -> dict[str, bytes]:
    """What the row tree's items only point to: by name, the bytes to keep in S3 before its items are written.

    Pure, as items_for; an object's name is a digest of its bytes. Raises: RowError as items_for does.
    """
    if not entity.contents:
        return {}
    decoded = entity.decode(row)
    contents = (content(decoded) for content in entity.contents)
    return {content.name: content.data for content in contents if content is not None}


def keys_for(entity: CompiledEntity, row: RowTree, *, refused: bool) -> set[ItemKey]:
    """Base keys that a row may have had items under though it makes none there now.

    Those of designs about which another table's row decides (a `when` or a TTL of a joined column); of a `refused` row
    those of all. Keys that cannot be built are left out. Pure.
    """
    wanted = [make for foreign, make in entity.keys if foreign or refused]
    keys: set[ItemKey] = set()
    # Key by key: the value that refused the row need not be part of every key.
    decoded = entity.decode_refused(row) if wanted else []
    for make in wanted:
        item: Item = {}
        try:
            make(decoded, item)
        except RowError:
            continue
        keys.add(entity.table.key_of(item))
    return keys


def compile_entity(mapping: Mapping, plan: EntityPlan, transform: Transform | None = None) -> CompiledEntity:
    """The entity's functions. The plan must be free of faults (see check.py).

    `transform`: the function that the entity's `transform` names, where it names one.
    """
    around = FilterContext(mapping.table.separator, mapping.maps, mapping.timezone)
    places = places_of(plan)
    return CompiledEntity(
        plan=plan,
        mapping=mapping,
        table=mapping.table,
        decode=row_decoder(plan, transform),
        decode_refused=refused_row_decoder(plan, transform),
        key_places=tuple(places.columns[column.name] for column in plan.key),
        makers=tuple(_maker(mapping, plan, item, places, around) for item in plan.entity.items),
        contents=compile_contents(plan.entity, places, around),
        keys=tuple(
            (decided_elsewhere(plan, item), compile_base_key(mapping.table, item, places, around))
            for item in plan.entity.items
        ),
    )


# ── what an item is made of ──


def _maker(
    mapping: Mapping, plan: EntityPlan, design: ItemDesign, places: Places, around: FilterContext
) -> Callable[[Row, str], Item | None]:
    """A function from a decoded row and its `_src` to the item, or None where `when` does not hold."""
    table = mapping.table
    at = f"{plan.entity.name}.{design.type}"
    when = compile_conditions(design.when, places)
    base = compile_base_key(table, design, places, around)
    entries = _entries(table, design, places, around)
    attributes = _attributes(plan, design, places, around)
    last = (_plain_keys(plan, table, design), _expiry(mapping, design, places))
    steps = (*entries, attributes, *(step for step in last if step is not None))
    fixed = {table.type_attribute: design.type, table.revision_attribute: mapping.revision}

    def make(row: Row, source: str) -> Item | None:
        if when is not None and not when(row):
            return None
        item: Item = {}
        try:
            base(row, item)
            item.update(fixed)
            item[table.source_attribute] = source
            for step in steps:
                step(row, item)
            _check_size(item)
        except RowError as error:
            raise RowError(f"{at}: {error}") from None
        return item

    return make


def attribute_names(plan: EntityPlan, table: TableDesign, design: ItemDesign) -> tuple[str, ...]:
    """Of all attributes that items of the design may have, but the ticket, in the order in which they are made."""
    written = {**plan.entity.attributes, **design.attributes}
    return (
        *(attribute.name for attribute in table.key),
        *(table.type_attribute, table.revision_attribute, table.source_attribute),
        *(attribute.name for entry in design.entries for attribute in index_keys(table, entry)),
        *(name for name in kept_columns(plan, design) if name not in written),
        *written,
        *([table.ttl] if design.expiry is not None and table.ttl else []),
    )


def index_keys(table: TableDesign, entry: IndexEntry) -> tuple[KeyAttribute, ...]:
    """The attributes that an index entry writes: the index's own, without those of the table's key."""
    index = next(index for index in table.indexes if index.name == entry.index)
    return index.own_attributes(table)


def _entries(
    table: TableDesign, design: ItemDesign, places: Places, around: FilterContext
) -> tuple[Step, ...]:
    indexes = {index.name: index for index in table.indexes}
    return tuple(
        _entry(
            table,
            indexes[entry.index],
            [
                compile_key(template, attribute, places, around)
                for attribute, template in zip(
                    indexes[entry.index].own_attributes(table), entry.values, strict=True
                )
            ],
            compile_conditions(entry.when, places),
        )
        for entry in design.entries
    )


def _entry(
    table: TableDesign, index: Index, getters: Sequence[Compiled], when: Callable[[Row], bool] | None
) -> Step:
    parts = [
        (attribute.name, get, _limit(index, attribute))
        for attribute, get in zip(index.own_attributes(table), getters, strict=True)
    ]

    def step(row: Row, item: Item) -> None:
        if when is not None and not when(row):
            return
        values = {name: (get(row), limit) for name, get, limit in parts}
        if any(value is None for value, _ in values.values()):
            return
        item.update({name: checked_key(name, value, limit) for name, (value, limit) in values.items()})

    return step


def _limit(index: Index, attribute: KeyAttribute) -> int:
    return PARTITION_KEY_BYTES if attribute in index.partition else SORT_KEY_BYTES


_PYTHON_TYPES: dict[str, tuple[type, ...]] = {"text": (str,), "number": (int, Decimal), "binary": (bytes,)}


def _plain_keys(plan: EntityPlan, table: TableDesign, design: ItemDesign) -> Step | None:
    """Looks at plain attributes that are index keys by their name: DynamoDB takes no other type, and no empty one.

    None where there are no such attributes.
    """
    names = watched_names(plan, table, design)
    if not names:
        return None
    watched = [
        (attribute.name, _PYTHON_TYPES[attribute.type], attribute.type, _limit(index, attribute))
        for index in table.indexes
        for attribute in index.own_attributes(table)
        if attribute.name in names
    ]

    def step(row: Row, item: Item) -> None:
        for name, types, called, limit in watched:
            if name not in item:
                continue
            value = item[name]
            if not isinstance(value, types) or isinstance(value, bool):
                raise RowError(f"{name} is a key of an index, of type {called}; the value is of another type")
            checked_key(name, value, limit)

    return step


def watched_names(plan: EntityPlan, table: TableDesign, design: ItemDesign) -> set[str]:
    """Plain attributes of an item that are keys of an index by their names."""
    written = {**plan.entity.attributes, **design.attributes}.keys() | set(kept_columns(plan, design))
    return {one.name for index in table.indexes for one in index.own_attributes(table)} & written


def _attributes(plan: EntityPlan, design: ItemDesign, places: Places, around: FilterContext) -> Step:
    written = {**plan.entity.attributes, **design.attributes}
    kept = [(name, places.columns[name]) for name in kept_columns(plan, design) if name not in written]
    getters = compile_values(written, places, around)

    def step(row: Row, item: Item) -> None:
        for name, index in kept:
            if row[index] is not None:
                item[name] = stored(attribute(row[index]))
        name = ""
        try:
            for name, get in getters:
                value = get(row)
                if value is not None:
                    item[name] = stored(value)
        except RowError as error:
            raise RowError(f"{name}: {error}") from None

    return step


def _expiry(mapping: Mapping, design: ItemDesign, places: Places) -> Step | None:
    """Puts the item's TTL into it; None where its design has none."""
    get, name = compile_expiry(mapping, design, places), mapping.table.ttl
    if get is None or name is None:
        return None

    def step(row: Row, item: Item) -> None:
        seconds = get(row)
        if seconds is not None:
            item[name] = seconds

    return step


_YEAR_2200 = 7_258_118_400
"""In seconds since 1970. A number beyond is of another unit, and its item would never expire."""


def compile_expiry(
    mapping: Mapping, design: ItemDesign, places: Places
) -> Callable[[Row], int | None] | None:
    """A function giving an item's TTL in epoch seconds, None where it has none; None where its design has none."""
    expiry = design.expiry
    if expiry is None or mapping.table.ttl is None:
        return None
    index = places.columns[expiry.path]
    zone = ZoneInfo(mapping.timezone or "UTC")

    def seconds(row: Row) -> int | None:
        value = fitting(row[index])
        if value is None:
            return None
        if not isinstance(value, int):
            return epoch_seconds(value, zone) + expiry.days * 86_400
        if value == 0 and expiry.zero == "never":
            return None
        if value // expiry.per_s >= _YEAR_2200:
            what = "its TTL lies beyond the year 2200"
            advice = (
                "write unit: milliseconds if it counts those"
                if expiry.per_s == 1
                else "is it in milliseconds?"
            )
            raise RowError(f"{expiry.path}: {what}; {advice}")
        return value // expiry.per_s + expiry.days * 86_400

    return seconds


def _check_size(item: Item) -> None:
    size = item_bytes(item)
    if size > ITEM_BYTES:
        largest = max(item, key=lambda name: value_bytes(item[name]))
        what = f"the item takes {size} bytes; DynamoDB takes {ITEM_BYTES} at most"
        raise RowError(f"{what}; most of them are {largest}: keep it in S3 with {{from: …, to: s3}}")


# ── Rows of a page as items and refusals: what every stage does before it writes or compares ──


@dataclass(frozen=True)
class Projection:
    """Items of a page's rows, in the rows' order, and the objects that they point to. `expired` items are left out."""

    rows: int
    items: list[Item]
    expired: list[Item]
    refused: list[Finding]
    objects: dict[str, bytes]


def project(entity: CompiledEntity, rows: Sequence[RowTree], now_s: float) -> Projection:
    """The items of `rows`; a row that `items_for` refuses is a finding, and the others go on."""
    items: list[Item] = []
    expired: list[Item] = []
    refused: list[Finding] = []
    objects: dict[str, bytes] = {}
    for row in rows:
        try:
            made = items_for(entity, row)
            objects |= objects_for(entity, row)
        except RowError as error:
            refused.append(Finding("refused", entity.name, str(error), row_key(entity, row)))
            continue
        for item in made:
            (expired if is_expired(item, entity.table, now_s) else items).append(item)
    return Projection(len(rows), items, expired, refused, objects)


def is_expired(item: Item, table: TableDesign, now_s: float) -> bool:
    """Whether the item's TTL has passed. Such an item is clean present or absent: DynamoDB deletes late."""
    expiry = item.get(table.ttl) if table.ttl else None
    return isinstance(expiry, int) and expiry <= now_s


def key_text(table: TableDesign, item: Item) -> str:
    """The item's key as JSON text, for findings."""
    return item_key_text(table.key_of(item))


def stamp(items: Iterable[Item], table: TableDesign, ticket: int) -> None:
    """Writes the ticket of the reading into each item."""
    for item in items:
        item[table.ticket_attribute] = ticket


def row_key(entity: CompiledEntity, row: RowTree) -> str:
    """The row's key; '' where it holds what no key should."""
    try:
        return entity.source_key(row)
    except TypeError:
        return ""
