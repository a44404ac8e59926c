"""A mapping's items and access patterns as a TypeScript module for ElectroDB (electrodb 3).

Key attributes are attributes of the entity, each the whole of its index key, and the functions `…Keys` make them:
`entity.put({ ...trackKeys(track), ...track })`. ElectroDB's own templates pad by attribute, so that a number that is padded
in one key and bare in another would be written wrong in one of them; and it asks for the table's key before any `set`.
Source: electrodb.dev, "Use an attribute as an index key"; its clauses.js for the order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from migrator.features.exports.model import Attribute, Model
from migrator.features.exports.typescript.items import Item, Vocabulary, field_names, module, vocabulary
from migrator.features.exports.typescript.keys import Made, Refusals
from migrator.features.exports.typescript.language import block, property_, quoted
from migrator.mapping.model.facts import Kind
from migrator.mapping.model.table import Index

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_IMPORTS = (
    'import type { DynamoDBClient } from "@aws-sdk/client-dynamodb";',
    'import { Entity } from "electrodb";',
)


def electrodb_typescript(model: Model, head: Sequence[str]) -> str:
    """Raises: SettingsError naming all that ElectroDB cannot say."""
    refusals = Refusals()
    spoken = vocabulary(model, refusals)
    for item in spoken.items:
        for name in field_names(model.table, item):
            if not _NAME.fullmatch(name):
                where = f"{item.made.item.name}.{name}"
                refusals.add(where, "ElectroDB puts this name into expressions as it stands")
    for key in model.table.key:
        if key.type != "text":
            refusals.add(f"table.key.{key.name}", f"ElectroDB's keys are asked as texts here, not {key.type}")
    if not spoken.items:
        refusals.add("entities", "there is no item type")
    library = [*_entities(spoken), *_places(spoken), *_asking(model)]
    return module(spoken, head, _IMPORTS, library, refusals)


# ── entities ──


def _entities(spoken: Vocabulary) -> list[str]:
    lines = [
        line
        for item in spoken.items
        for line in (
            f"{property_(item.made.item.name)}: new Entity({{",
            *block(_entity(spoken, item)),
            "}, options),",
        )
    ]
    return [
        "/** An entity of ElectroDB for each item type. Items that migrator wrote are read with `ignoreOwnership: true`. */",
        "export function entities(client: DynamoDBClient, table: string = TABLE) {",
        "  const options = { client, table };",
        "  return {",
        *block(lines, 4),
        "  } as const;",
        "}",
        "",
        "export type Entities = ReturnType<typeof entities>;",
        "",
    ]


def _entity(spoken: Vocabulary, item: Item) -> list[str]:
    table = spoken.model.table
    indexes = [f"primary: {_index(None, table.asked(None))},"]
    for index in _indexes_of(spoken, item):
        indexes.append(f"{property_(index.name)}: {_index(index.name, index)},")
    return [
        f'model: {{ entity: {quoted(item.made.item.name)}, version: "1", service: {quoted(table.name)} }},',
        "attributes: {",
        *block(_attributes(spoken, item)),
        "},",
        "indexes: {",
        *block(indexes),
        "},",
    ]


def _indexes_of(spoken: Vocabulary, item: Item) -> list[Index]:
    """Indexes of whose keys the item has all attributes."""
    names = set(field_names(spoken.model.table, item))
    return [index for index in spoken.model.table.indexes if {key.name for key in index.attributes} <= names]


def _index(name: str | None, index: Index | None) -> str:
    assert index is not None, "the table is an index without a name"
    keys = zip(("pk", "sk"), index.attributes, strict=False)
    fields = [
        f'{word}: {{ field: {quoted(key.name)}, composite: [{quoted(key.name)}], casing: "none" }}'
        for word, key in keys
    ]
    return f"{{ {', '.join([f'index: {quoted(name)}'] if name else [])}{', ' if name else ''}{', '.join(fields)} }}"


def _attributes(spoken: Vocabulary, item: Item) -> list[str]:
    table, own = spoken.model.table, item.made.item
    written = {attribute.name for attribute in own.attributes}
    fields: dict[str, str] = {}
    for part in item.made.base:
        fields[part.attribute.name] = _key_attribute(part, is_base=True)
    for entry in item.made.entries:
        fields |= {part.attribute.name: _key_attribute(part, is_base=False) for part in entry.parts}
    fields = {name: text for name, text in fields.items() if name not in written}
    fields[table.type_attribute] = (
        f"{{ type: [{quoted(own.name)}] as const, required: true, default: () => {quoted(own.name)} as const }}"
    )
    fields |= {attribute.name: _attribute(attribute) for attribute in own.attributes}
    if own.expiry and table.ttl:
        fields.setdefault(table.ttl, '{ type: "number" }')
    return [f"{property_(name)}: {text}," for name, text in fields.items()]


def _key_attribute(part: Made, *, is_base: bool) -> str:
    type_ = '"string"' if part.attribute.type == "text" else '"number"'
    return f"{{ type: {type_}{', required: true' if is_base else ''} }}"


def _attribute(attribute: Attribute) -> str:
    required = ", required: true" if attribute.required else ""
    return f'{{ type: "{_type(attribute)}"{required} }}'


def _type(attribute: Attribute) -> str:
    kind = attribute.kind or Kind("plain")
    if attribute.stored is not None:
        return "any"
    names = {"integer": "number", "number": "number", "float": "number", "boolean": "boolean"}
    texts = {"text", "date", "time", "timestamp", "uuid", "bits"}
    return "string" if kind.name in texts else names.get(kind.name, "any")


# ── asking ──


def _places(spoken: Vocabulary) -> list[str]:
    """By index an item type that is in it, through whose entity it is asked."""
    found: dict[str, str] = {"primary": spoken.items[0].made.item.name} if spoken.items else {}
    for item in spoken.items:
        for index in _indexes_of(spoken, item):
            found.setdefault(index.name, item.made.item.name)
    lines = [f"{property_(index)}: {quoted(name)}," for index, name in found.items()]
    return [
        "/** Of each index an entity that is in it. */",
        "const PLACES: Record<string, string> = {",
        *block(lines),
        "};",
        "",
    ]


def _asking(model: Model) -> list[str]:
    """The lines by which the model's patterns ask, and no others."""
    asked = {pattern.pattern.operation == "query" for pattern in model.patterns}
    texts = [_CLIENT, *([_PAGES] if True in asked else []), *([_GETTER] if False in asked else [])]
    return [line for text in texts for line in text.split("\n")]


_CLIENT = """/** What of an entity of ElectroDB is used below, whatever its attributes. */
interface Asked {
  get(key: Item): { go(options: Item): Promise<{ data: unknown }> };
  query: Record<string, (key: Item) => Record<string, (...values: Item[]) => unknown>>;
}

const OPERATORS = { begins_with: "begins", between: "between", ">=": "gte", ">": "gt", "<=": "lte", "<": "lt" } as const;

function entityOf(client: Entities, index: string): Asked {
  return (client as unknown as Record<string, Asked>)[PLACES[index] as string] as Asked;
}
"""

_PAGES = """function pages(client: Entities, question: Question) {
  const index = question.index ?? "primary";
  return async (partition: KeyValue, next: unknown, size: number | undefined): Promise<Page> => {
    const { sort } = question;
    const key: Item = { [question.hash]: partition };
    if (sort?.is === "=") key[sort.name] = sort.values[0];
    let query: unknown = entityOf(client, index).query[index]?.(key);
    if (sort && sort.is !== "=") {
      const chosen = query as Record<string, (...values: Item[]) => unknown>;
      query = chosen[OPERATORS[sort.is]]?.(...sort.values.map((value) => ({ [sort.name]: value })));
    }
    const { consistent = false, descending = false } = question;
    const order = descending ? "desc" : "asc";
    const options = { data: "raw", pager: "raw", ignoreOwnership: true, compare: "keys", order };
    const sized = size === undefined ? {} : { limit: size };
    const from = next === undefined ? {} : { cursor: next };
    const more = { ...(consistent ? { consistent } : {}), ...sized, ...from };
    const answer = await (query as { go(options: Item): Promise<{ data: unknown }> }).go({ ...options, ...more });
    const page = answer.data as { Items?: Item[]; LastEvaluatedKey?: Item };
    return { items: page.Items ?? [], next: page.LastEvaluatedKey };
  };
}
"""

_GETTER = """function getter(client: Entities, consistent: boolean) {
  return async (key: Record<string, KeyValue>): Promise<Item | undefined> => {
    const options = { data: "raw", ignoreOwnership: true, ...(consistent ? { consistent } : {}) };
    const answer = await entityOf(client, "primary").get(key).go(options);
    return (answer.data as { Item?: Item } | null)?.Item;
  };
}
"""
