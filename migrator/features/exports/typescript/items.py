"""What a TypeScript module of a mapping begins with: its item types, and functions that make their keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from migrator.features.exports.file import comment
from migrator.features.exports.model import ItemType, Model, RowModel
from migrator.features.exports.typescript.keys import (
    Around,
    Input,
    ItemKeys,
    Made,
    MadeEntry,
    Refusals,
    keys_of,
)
from migrator.features.exports.typescript.language import (
    INHERITED,
    Identifiers,
    block,
    commented,
    helpers_of,
    listed,
    member,
    property_,
    quoted,
    runtime_names,
    type_of,
)
from migrator.features.exports.typescript.patterns import pattern_function
from migrator.mapping.model.table import KeyAttribute, TableDesign

_KEY_TYPES = {"text": "string", "number": "number", "binary": "Uint8Array"}


@dataclass(frozen=True)
class Item:
    """An item type as TypeScript calls it. `type`: its interface; `keys`: the function that makes its keys."""

    type: str
    keys: str
    made: ItemKeys

    @property
    def makers(self) -> str:
        return f"{self.keys}Made"


@dataclass(frozen=True)
class Vocabulary:
    """The mapping under its names in TypeScript."""

    model: Model
    items: tuple[Item, ...]
    names: Identifiers
    around: Around


def vocabulary(model: Model, refusals: Refusals) -> Vocabulary:
    names = Identifiers(runtime_names())
    maps = {name: f"MAP_{number}" for number, name in enumerate(model.maps, 1)}
    around = Around(model.table.separator, maps, model.timezone)
    items: dict[str, Item] = {}
    for row, item in _of_rows(model):
        if item.name in items:
            refusals.add(
                f"{row.entity.written}.items.{item.name}",
                "several entities or schemas make items of this type",
            )
            continue
        type_ = names.type(item.name)
        keys = names.function(f"{type_} keys")
        items[item.name] = Item(type_, keys, keys_of(model, row, item, around, refusals))
    _refuse_names(model.table, list(items.values()), refusals)
    return Vocabulary(model, tuple(items.values()), names, around)


def _of_rows(model: Model) -> Iterator[tuple[RowModel, ItemType]]:
    for row in model.rows:
        yield from ((row, item) for item in row.items)


def _refuse_names(table: TableDesign, items: Sequence[Item], refusals: Refusals) -> None:
    for index in table.indexes:
        if len(index.partition) > 1 or len(index.sort) > 1:
            refusals.add(f"table.indexes.{index.name}", "a key of several attributes")
    for item in items:
        for name in field_names(table, item):
            if name in INHERITED:
                refusals.add(
                    f"{item.made.item.name}.{name}", "every object of JavaScript has a property of this name"
                )


def field_names(table: TableDesign, item: Item) -> list[str]:
    """Names of all attributes that an item has, but for migrator's own."""
    made = (*item.made.base, *(part for entry in item.made.entries for part in entry.parts))
    names = [part.attribute.name for part in made] + [table.type_attribute]
    names += [attribute.name for attribute in item.made.item.attributes]
    return list(dict.fromkeys([*names, *([table.ttl] if item.made.item.expiry and table.ttl else [])]))


# ── the text ──


def module(
    spoken: Vocabulary,
    head: Sequence[str],
    imports: Sequence[str],
    library: Sequence[str],
    refusals: Refusals,
) -> str:
    """The whole module. `library`: the lines of ElectroDB. Raises: SettingsError for what cannot be said."""
    model = spoken.model
    own = [*_constants(model), "", *(line for item in spoken.items for line in _item(model, item)), *library]
    for pattern in model.patterns:
        own += pattern_function(pattern, spoken.names, spoken.around, refusals)
    refusals.check()
    code = "\n".join(own)
    helpers = helpers_of(code)
    crypto = ['import { createHash } from "node:crypto";'] if "createHash(" in "\n".join(helpers) else []
    return "\n".join(
        [
            comment("//", head),
            *crypto,
            *imports,
            "",
            code.rstrip("\n"),
            "",
            _HELPERS,
            "",
            "\n\n".join(helpers),
            "",
        ]
    )


_HELPERS = "// ── what the functions above are made of ──"


def _constants(model: Model) -> list[str]:
    table = model.table
    return [
        f"export const TABLE = {quoted(table.name)};",
        f"const KEY: readonly string[] = {listed(attribute.name for attribute in table.key)};",
        f"const TYPE = {quoted(table.type_attribute)};",
        f"const TTL: string | undefined = {quoted(table.ttl) if table.ttl else 'undefined'};",
        *(line for number, entries in enumerate(model.maps.values(), 1) for line in _map(number, entries)),
    ]


def _map(number: int, entries: Mapping[str, str]) -> list[str]:
    pairs = [f"[{quoted(one)}, {quoted(other)}]," for one, other in entries.items()]
    return [f"const MAP_{number}: ReadonlyMap<string, string> = new Map([", *block(pairs), "]);"]


def _item(model: Model, item: Item) -> list[str]:
    return [*_interface(model.table, item), *_inputs(item), *_makers(item), *_keys(item)]


def _interface(table: TableDesign, item: Item) -> list[str]:
    """An item as it is stored."""
    made, own = item.made, item.made.item
    written = {attribute.name for attribute in own.attributes}
    fields = [
        f"{property_(part.attribute.name)}: {_key_type(part.attribute)};"
        for part in made.base
        if part.attribute.name not in written
    ]
    fields.append(f"{property_(table.type_attribute)}: {quoted(own.name)};")
    for entry in made.entries:
        fields += [
            f"{property_(part.attribute.name)}?: {_key_type(part.attribute)};"
            for part in entry.parts
            if part.attribute.name not in written
        ]
    for attribute in own.attributes:
        type_ = "unknown" if attribute.stored is not None else type_of(attribute.kind)
        fields.append(f"{property_(attribute.name)}{'' if attribute.required else '?'}: {type_};")
    if own.expiry and table.ttl and table.ttl not in written:
        fields.append(f"{property_(table.ttl)}?: number;")
    what = f"/** An item of the type {commented(own.name)}, as it is stored. */"
    return [what, f"export interface {item.type} {{", *block(list(dict.fromkeys(fields))), "}", ""]


def _key_type(attribute: KeyAttribute) -> str:
    return _KEY_TYPES[attribute.type]


def _inputs(item: Item) -> list[str]:
    base = {name for part in item.made.base for name in part.inputs}
    fields = [_input(one, is_base=one.name in base) for one in item.made.inputs.values()]
    what = f"/** What the keys of {commented(item.made.item.name)} are made of. */"
    return [what, f"export interface {item.type}KeyValues {{", *block(fields), "}", ""]


def _input(one: Input, *, is_base: bool) -> str:
    type_ = type_of(one.kind)
    known = type_ if is_base else f"{type_} | null"
    what = [] if one.stored else ["/** No attribute holds it. */"]
    return " ".join([*what, f"{property_(one.name)}{'' if is_base else '?'}: {known};"])


def _makers(item: Item) -> list[str]:
    parts = [*item.made.base, *(part for entry in item.made.entries for part in entry.parts)]
    lines = [
        f"{property_(name)}: ({'of' if part.inputs else '_of'}: Partial<{item.type}KeyValues>) => {part.expression},"
        for name, part in {part.attribute.name: part for part in parts}.items()
    ]
    return [f"const {item.makers} = {{", *block(lines), "};", ""]


def _keys(item: Item) -> list[str]:
    given = "of" if item.made.inputs else f"of: {item.type}KeyValues = {{}}"
    argument = f"of: {item.type}KeyValues" if item.made.inputs else given
    lines = [
        f"{property_(part.attribute.name)}: must({quoted(part.attribute.name)}, {_call(item, part)}),"
        for part in item.made.base
    ]
    for entry in item.made.entries:
        lines.append(f"...{_entry(item, entry)},")
    named = commented(item.made.item.name)
    what = f"/** The key of an item of the type {named}, and the attributes of the indexes that it is in. */"
    return [
        what,
        f"export function {item.keys}({argument}) {{",
        "  return {",
        *block(lines, 4),
        "  };",
        "}",
        "",
    ]


def _entry(item: Item, entry: MadeEntry) -> str:
    fields = ", ".join(f"{property_(part.attribute.name)}: {_call(item, part)}" for part in entry.parts)
    return f"entry({entry.holds or 'true'}, {{ {fields} }})"


def _call(item: Item, part: Made) -> str:
    return f"{member(item.makers, part.attribute.name)}(of)"
