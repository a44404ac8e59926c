"""items_for(): the one place where a row becomes items, with keys and S3 objects; and the effects of a changed image."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Mapping as Dict
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property, partial
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct

from migrator.mapping.items.changes import decided_elsewhere, image_places, needs_memory
from migrator.mapping.items.filters import FilterContext
from migrator.mapping.items.program import (
    Attribute,
    Entry,
    ItemParts,
    Key,
    base_key,
    parts_of,
)
from migrator.mapping.items.rows import (
    Compiled,
    Content,
    Row,
    RowPlaces,
    compile_conditions,
    compile_expiry,
    compile_key,
    compile_value,
    content_of,
    places_of,
)
from migrator.mapping.items.transforms import Transform, refused_row_decoder, row_decoder
from migrator.mapping.items.values import Decoder, NoFormError, Undecodable, decoder, of_column, stored
from migrator.mapping.items.wire import item_bytes, value_bytes
from migrator.mapping.model.facts import Captured, EntityPlan, Lookup
from migrator.mapping.model.journal import Finding
from migrator.mapping.model.live import Image, Root
from migrator.mapping.model.mapping import Entity, Expiry, Mapping, Stored, paths_in
from migrator.mapping.model.table import (
    ITEM_BYTES,
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

# ── The base key of an item, made from a decoded row ──

Step = Callable[[Row, Item], None]
"""Puts something of the row into the item. Raises: RowError."""


def compile_base_key(keys: Sequence[Key], places: RowPlaces) -> Step:
    parts = _getters(keys, places)

    def step(row: Row, item: Item) -> None:
        for name, get, limit in parts:
            value = get(row)
            if value is None:
                raise RowError(f"{name} contains a NULL; give the item a when: or the value an |or:")
            item[name] = checked_key(name, value, limit)

    return step


def _getters(keys: Sequence[Key], places: RowPlaces) -> list[tuple[str, Compiled, int]]:
    return [(key.name, compile_key(key.template, key.attribute, places), key.limit) for key in keys]


def checked_key(name: str, value: Any, limit: int) -> Any:
    """Raises: RowError if a key of DynamoDB cannot hold the value."""
    size = value_bytes(value)
    if size == 0:
        raise RowError(f"{name} is empty; DynamoDB does not allow an empty key")
    if size > limit:
        raise RowError(f"{name} takes {size} bytes; DynamoDB takes {limit} at most")
    return value


# ── Objects in S3 that the items of an entity point to, as functions of a decoded row ──


def compile_contents(entity: Entity, places: RowPlaces) -> tuple[Callable[[Row], Content | None], ...]:
    return tuple(
        _content(expression, places, compile_conditions(item.when, places))
        for item in entity.items
        for expression in {**entity.attributes, **item.attributes}.values()
        if isinstance(expression, Stored)
    )


def _content(
    stored: Stored, places: RowPlaces, when: Callable[[Row], bool] | None
) -> Callable[[Row], Content | None]:
    value = compile_value(stored.value, places)
    return lambda row: None if when is not None and not when(row) else content_of(value(row), stored.over)


# ── items_for(): the one place where a row becomes items ──


class CompiledEntity(Struct, frozen=True, dict=True):
    """An entity as functions. Thread-safe."""

    plan: EntityPlan
    mapping: Mapping
    table: TableDesign
    decode: Callable[[RowTree], Row]
    decode_refused: Callable[[RowTree], Row]
    key_places: tuple[int, ...]
    makers: tuple[Callable[[Row, str], Item | None], ...]
    contents: tuple[Callable[[Row], Content | None], ...] = ()
    keys: tuple[tuple[bool, Callable[[Row, Item], None]], ...] = ()
    """Per item design, whether other values than the root row decide if it exists, and the writer of its base key."""

    @cached_property
    def name(self) -> str:
        return self.plan.entity.name

    def source_key(self, row: RowTree) -> SourceKey:
        return encode_key([row[index] for index in self.key_places])


def items_for(entity: CompiledEntity, row: RowTree) -> list[Item]:
    """Items of one row tree: none, one or several.

    Pure: the same row tree always makes the same items. They carry `_src` and `_rev`; the stage adds the
    ticket. Items past their TTL are included.
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
    """Bytes by name, to be stored in S3 before the row tree's items are written.

    Pure; a name is a digest of the bytes. Raises: RowError as items_for does.
    """
    if not entity.contents:
        return {}
    decoded = entity.decode(row)
    contents = (content(decoded) for content in entity.contents)
    return {content.name: content.data for content in contents if content is not None}


def keys_for(entity: CompiledEntity, row: RowTree, *, refused: bool) -> set[ItemKey]:
    """Base keys under which the row may have had items, but makes none now.

    Includes designs that another table's row decides (a `when` or a TTL of a joined column); of a `refused`
    row all designs. Keys that cannot be built are left out. Pure.
    """
    wanted = [make for foreign, make in entity.keys if foreign or refused]
    keys: set[ItemKey] = set()
    # Key by key: the value that refused the row need not be part of every key.
    decoded = entity.decode_refused(row) if wanted else []
    for make in wanted:
        item: Item = {}
        with suppress(RowError):
            make(decoded, item)
            keys.add(entity.table.key_of(item))
    return keys


def compile_entity(mapping: Mapping, plan: EntityPlan, transform: Transform | None = None) -> CompiledEntity:
    """Compile a plan without faults (see check.py).

    `transform`: the function that the entity names, if any.
    """
    places = places_of(plan, FilterContext.of(mapping))
    return CompiledEntity(
        plan=plan,
        mapping=mapping,
        table=mapping.table,
        decode=row_decoder(plan, transform),
        decode_refused=refused_row_decoder(plan, transform),
        key_places=tuple(places.columns[column.name] for column in plan.key),
        makers=tuple(
            _maker(plan.entity.name, parts_of(mapping, plan, item), places) for item in plan.entity.items
        ),
        contents=compile_contents(plan.entity, places),
        keys=tuple(
            (decided_elsewhere(plan, item), compile_base_key(base_key(mapping.table, item), places))
            for item in plan.entity.items
        ),
    )


# ── the parts of an item ──


def _maker(entity: str, parts: ItemParts, places: RowPlaces) -> Callable[[Row, str], Item | None]:
    at = f"{entity}.{parts.type}"
    when = compile_conditions(parts.when, places)
    base = compile_base_key(parts.base, places)
    entries = [_entry(part, places) for part in parts.entries]
    expires = [_expiry(*parts.expires, places)] if parts.expires else []
    steps = (*entries, _attributes(parts.attributes, places), *_typed(parts.attributes), *expires)

    def make(row: Row, source: str) -> Item | None:
        if when is not None and not when(row):
            return None
        item: Item = {}
        try:
            base(row, item)
            item.update(parts.fixed)
            item[parts.source] = source
            for step in steps:
                step(row, item)
            _check_size(item)
        except RowError as error:
            raise RowError(f"{at}: {error}") from None
        return item

    return make


def _entry(entry: Entry, places: RowPlaces) -> Step:
    when, parts = compile_conditions(entry.when, places), _getters(entry.keys, places)

    def step(row: Row, item: Item) -> None:
        if when is not None and not when(row):
            return
        values = {name: (get(row), limit) for name, get, limit in parts}
        if any(value is None for value, _ in values.values()):
            return
        item.update({name: checked_key(name, value, limit) for name, (value, limit) in values.items()})

    return step


def _attributes(parts: Sequence[Attribute], places: RowPlaces) -> Step:
    getters = [(part, compile_value(part.value, places)) for part in parts]

    def step(row: Row, item: Item) -> None:
        for part, get in getters:
            try:
                value = get(row)
            except RowError as error:
                if part.kept:
                    raise
                raise RowError(f"{part.name}: {error}") from None
            if value is not None:
                item[part.name] = stored(value)

    return step


_PYTHON_TYPES: dict[str, tuple[type, ...]] = {"text": (str,), "number": (int, Decimal), "binary": (bytes,)}


def _typed(parts: Sequence[Attribute]) -> Iterator[Step]:
    """Check plain attributes that are index keys: DynamoDB takes no other type, and no empty one."""
    for part in parts:
        if part.key is not None:
            yield partial(_need_type, part.name, *part.key)


def _need_type(name: str, key: KeyAttribute, limit: int, _: Row, item: Item) -> None:
    if name not in item:
        return
    value = item[name]
    if not isinstance(value, _PYTHON_TYPES[key.type]) or isinstance(value, bool):
        raise RowError(f"{name} is an index key of type {key.type}; the value has another type")
    checked_key(name, value, limit)


def _expiry(name: str, expiry: Expiry, places: RowPlaces) -> Step:
    get = compile_expiry(expiry, places)

    def step(row: Row, item: Item) -> None:
        seconds = get(row)
        if seconds is not None:
            item[name] = seconds

    return step


def _check_size(item: Item) -> None:
    size = item_bytes(item)
    if size > ITEM_BYTES:
        largest = max(item, key=lambda name: value_bytes(item[name]))
        what = f"the item takes {size} bytes; DynamoDB takes {ITEM_BYTES} at most"
        raise RowError(f"{what}; the largest attribute is {largest}: keep it in S3 with {{from: …, to: s3}}")


# ── Rows of a page as items and refusals: what every stage does before it writes or compares ──


Made = TypeVar("Made")


class Projection(Struct, Generic[Made], frozen=True):
    """Items in the rows' order, and the objects that they refer to. `expired`: number of items past their TTL,
    left out.
    """

    rows: int
    items: Sequence[Made]
    expired: Sequence[Made]
    refused: list[Finding]
    objects: dict[str, bytes]


def project(entity: CompiledEntity, rows: Sequence[RowTree], now_s: float) -> Projection[Item]:
    items: list[Item] = []
    expired: list[Item] = []
    refused: list[Finding] = []
    objects: dict[str, bytes] = {}
    for row in rows:
        try:
            made = items_for(entity, row)
            objects.update(objects_for(entity, row))
        except RowError as error:
            refused.append(Finding("refused", entity.name, str(error), row_key(entity, row)))
            continue
        for item in made:
            (expired if is_expired(item, entity.table, now_s) else items).append(item)
    return Projection(len(rows), items, expired, refused, objects)


def is_expired(item: Item, table: TableDesign, now_s: float) -> bool:
    """Whether the TTL has passed. Such an item is clean present or absent: DynamoDB deletes late."""
    expiry = item.get(table.ttl) if table.ttl else None
    return isinstance(expiry, int) and expiry <= now_s


def key_text(table: TableDesign, item: Item) -> str:
    return item_key_text(table.key_of(item))


def stamp(items: Iterable[Item], table: TableDesign, ticket: int) -> None:
    for item in items:
        item[table.ticket_attribute] = ticket


def row_key(entity: CompiledEntity, row: RowTree) -> str:
    """The row's key; '' if it contains a value that keys must not have."""
    try:
        return entity.source_key(row)
    except TypeError:
        return ""


# ── Item keys of a changed row, computed from its image without the row tree. Pure ──

ImageKeys: TypeAlias = Callable[[Dict[str, Any]], frozenset[ItemKey]]
"""From an image (values by written name, as the driver gives them) to item keys.

Raises: KeyError if the image lacks a column of a key: it was left for another mapping.
"""


def no_keys(image: Dict[str, Any]) -> frozenset[ItemKey]:
    return frozenset()


def image_keys(mapping: Mapping, plan: EntityPlan) -> ImageKeys:
    """Return `no_keys` if keys are remembered: the image may be of another row (see `changes:` in the mapping)."""
    return no_keys if needs_memory(plan) else compile_image_keys(mapping, plan)


def compile_image_keys(mapping: Mapping, plan: EntityPlan) -> ImageKeys:
    """Base keys of the entity's items, whether their `when` holds or not.

    Without keys that `items_for` would refuse (a NULL, too long), and designs whose key needs more than root
    columns: their keys are remembered (see changes.needs_memory).
    """
    places = image_places(mapping, plan)
    decoders = {slot.path: decoder(slot.column.kind) for slot in plan.slots if slot.path in places.columns}
    # Only the columns of its own key: an undecodable column elsewhere must not refuse a key.
    bases = [
        (
            {path: decoders[path] for path in paths_in(design.key)},
            compile_base_key(base_key(mapping.table, design), places),
        )
        for design in plan.entity.items
        if places.columns.keys() >= set(paths_in(design.key))
    ]

    def keys(image: Dict[str, Any]) -> frozenset[ItemKey]:
        items: list[Item] = []
        for wanted, base in bases:
            item: Item = {}
            with suppress(RowError):
                base(_row(places, wanted, image), item)
                items.append(item)
        return frozenset(map(mapping.table.key_of, items))

    return keys


def _row(places: RowPlaces, wanted: Dict[str, Decoder], image: Dict[str, Any]) -> list[Any]:
    """The decoded row, None in places that are not wanted. Raises: RowError if `items_for` would refuse the row."""
    row: list[Any] = [None] * len(places.columns)
    for path, decode in wanted.items():
        try:
            row[places.columns[path]] = decode(image[path])
        except NoFormError as error:
            row[places.columns[path]] = Undecodable(error.text, of_column(path, error))
    return row


# ── Root rows that a change affects, from the images of a mark: named directly, or found by lookups ──


@dataclass
class Reach:
    """`roots`: with the item keys that they had or have.
    `steps`: lookups with their start values.
    `blind`: entities with old keys that the images lack.
    """

    roots: dict[Root, set[ItemKey]] = field(default_factory=dict)
    steps: list[tuple[Lookup, tuple[Any, ...]]] = field(default_factory=list)
    blind: set[str] = field(default_factory=set)


def reach_of(
    captured: Captured,
    keys: Dict[str, ImageKeys],
    before: Image | None,
    after: Image | None,
) -> Reach:
    """Root rows that a change affects, before and after it; a NULL refers to no row."""
    reach = Reach()
    seen: set[tuple[int, tuple[str, ...]]] = set()
    for image in (before,) if after is before else (before, after):
        if image is None:
            continue
        for number, lookup in enumerate(captured.lookups):
            if any(image.get(name) is None for name in lookup.values):
                reach.blind |= {lookup.entity} if not image.keys() >= set(lookup.values) else set()
                continue
            values = lookup.begin(image)
            if lookup.is_root:
                _add_root(reach, lookup.entity, values, keys[lookup.entity], image)
            elif (step_key := (number, tuple(map(repr, values)))) not in seen:
                seen.add(step_key)
                reach.steps.append((lookup, values))
    return reach


def _add_root(reach: Reach, entity: str, values: tuple[Any, ...], keys: ImageKeys, image: Image) -> None:
    had = reach.roots.setdefault((entity, encode_key(values)), set())
    try:
        had |= keys(image)
    except KeyError:
        reach.blind.add(entity)
