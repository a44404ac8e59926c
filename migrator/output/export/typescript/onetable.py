"""A mapping's items and access patterns as a TypeScript module for OneTable (dynamodb-onetable 2.7).

Where a value template of OneTable gives the same bytes it is one; else the field has `value: true`, and a function makes it.
Source: dynamodb-onetable, README, "Schema" and "Table constructor"; its Model.js for what templates do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from migrator.mapping.heart.templates import format_width
from migrator.model.facts import Kind
from migrator.model.mapping import Ref
from migrator.model.table import Index, TableDesign
from migrator.output.export.file import REVISION_DIGITS
from migrator.output.export.model import Attribute, Model
from migrator.output.export.typescript.items import Item, Vocabulary, asking, module, vocabulary
from migrator.output.export.typescript.keys import Input, Made, MadeEntry, Refusals
from migrator.output.export.typescript.language import block, listed, member, property_, quoted
from migrator.output.export.typescript.patterns import Client

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_IN_TEMPLATE = frozenset({"integer", "uuid", "date", "time"})
"""Kinds whose text is what a template writes, and never holds `${`, which OneTable takes for a value that is missing."""

_IMPORTS = (
    'import type { DynamoDBClient } from "@aws-sdk/client-dynamodb";',
    'import { Table } from "dynamodb-onetable";',
    'import { Dynamo } from "dynamodb-onetable/Dynamo";',
)
_TAKEN = (
    "DynamoDBClient",
    "schema",
    "openTable",
    "OpenTable",
    "pages",
    "getter",
    "valueOf",
    "wholeEntries",
    "MAKERS",
    "ENTRIES",
)


def onetable_typescript(model: Model, head: Sequence[str]) -> str:
    """Raises: SettingsError naming all that OneTable cannot say."""
    refusals = Refusals("OneTable")
    spoken = vocabulary(model, _TAKEN, refusals)
    _refuse(model.table, spoken.items, refusals)
    client = Client("OpenTable", "pages", "getter")
    library = [*_schema(spoken), *_tables(spoken), *asking(model, _CLIENT, _PAGES, _GETTER)]
    return module(spoken, head, _IMPORTS, library, client, refusals)


def _refuse(table: TableDesign, items: Sequence[Item], refusals: Refusals) -> None:
    for key in table.key:
        if key.type != "text":
            refusals.add(
                f"table.key.{key.name}", f"OneTable writes keys of the table as texts, not {key.type}"
            )
        if not _NAME.fullmatch(key.name):
            refusals.add(f"table.key.{key.name}", "OneTable puts this name into expressions as it stands")
    for item in items:
        for attribute in item.made.item.attributes:
            where = f"{item.made.item.name}.{attribute.name}"
            if attribute.kind is not None and attribute.kind.name == "binary":
                refusals.add(where, "OneTable writes bytes as a text in Base64")
            if "." in attribute.name:
                refusals.add(where, "OneTable takes a name up to its dot")


# ── the schema ──


def _schema(spoken: Vocabulary) -> list[str]:
    table = spoken.model.table
    indexes = [
        f"primary: {{ {_keys(table.key)} }},",
        *(f"{property_(index.name)}: {_index(index)}," for index in table.indexes),
    ]
    models = [
        line
        for item in spoken.items
        for line in (f"{property_(item.made.item.name)}: {{", *block(_fields(table, item)), "},")
    ]
    return [
        "export const schema = {",
        '  format: "onetable:1.1.0",',
        f'  version: "0.0.0-{spoken.model.revision[:REVISION_DIGITS]}",',
        f"  params: {{ typeField: {quoted(table.type_attribute)}, timestamps: false, isoDates: false, nulls: false }},",
        "  indexes: {",
        *block(indexes, 4),
        "  },",
        "  models: {",
        *block(models, 4),
        "  },",
        "} as const;",
        "",
    ]


def _keys(attributes: Sequence[object]) -> str:
    words = zip(("hash", "sort"), attributes, strict=False)
    return ", ".join(f"{word}: {quoted(attribute.name)}" for word, attribute in words)  # type: ignore[attr-defined]


def _index(index: Index) -> str:
    project = quoted(index.projection) if isinstance(index.projection, str) else listed(index.projection)
    kind = ', type: "local"' if index.local else ""
    return f"{{ {_keys(index.attributes)}, project: {project}{kind} }}"


def _fields(table: TableDesign, item: Item) -> list[str]:
    own = item.made.item
    written = {attribute.name for attribute in own.attributes}
    fields: dict[str, str] = {}
    for part in item.made.base:
        fields[part.attribute.name] = _key_field(item, part, None)
    for entry in item.made.entries:
        fields |= {part.attribute.name: _key_field(item, part, entry) for part in entry.parts}
    fields = {name: text for name, text in fields.items() if name not in written}
    fields[table.type_attribute] = f"{{ type: String, required: true, value: {quoted(own.name)} }}"
    fields |= {attribute.name: _field(attribute) for attribute in own.attributes}
    if own.expiry and table.ttl:
        fields.setdefault(table.ttl, "{ type: Number }")
    return [f"{property_(name)}: {text}," for name, text in fields.items()]


def _key_field(item: Item, part: Made, entry: MadeEntry | None) -> str:
    type_ = "String" if part.attribute.type == "text" else "Number"
    if not is_automatic(item, part, entry):
        return f"{{ type: {type_}, required: true }}" if entry is None else f"{{ type: {type_} }}"
    template = None if entry is not None and entry.holds else _template(item, part)
    return f"{{ type: {type_}, value: {'true' if template is None else quoted(template)} }}"


def is_automatic(item: Item, part: Made, entry: MadeEntry | None) -> bool:
    """Whether the attributes of the item are enough to make the key attribute."""
    names = (*part.inputs, *(entry.inputs if entry is not None else ()))
    return not part.plain and all(item.made.inputs[name].stored for name in names)


def _template(item: Item, part: Made) -> str | None:
    """The value template that makes the same text; None where there is none."""
    if part.attribute.type != "text":
        return None
    pieces = []
    names = iter(part.inputs)
    for piece in part.template.parts:
        if isinstance(piece, Ref):
            one = item.made.inputs[next(names, part.inputs[-1])]
            placeholder = _placeholder(piece, one)
            if placeholder is None or len(part.inputs) != len(part.template.refs):
                return None
            pieces.append(placeholder)
        elif "${" in piece or "{" in piece[-1:]:
            return None
        else:
            pieces.append(piece)
    return "".join(pieces)


def _placeholder(ref: Ref, one: Input) -> str | None:
    if (
        ref.filters
        or len(ref.paths) > 1
        or one.kind.name not in _IN_TEMPLATE
        or not _NAME.fullmatch(one.name)
    ):
        return None
    if ref.format is None:
        return f"${{{one.name}}}"
    width, decimals = format_width(ref.format)
    return f"${{{one.name}:{width}:0}}" if not decimals and one.kind.name == "integer" else None


def _field(attribute: Attribute) -> str:
    required = ", required: true" if attribute.required else ""
    return f"{{ type: {_constructor(attribute)}{required} }}"


def _constructor(attribute: Attribute) -> str:
    kind = attribute.kind or Kind("plain")
    if attribute.stored is not None:
        return "Object"
    names = {
        "integer": "Number",
        "number": "Number",
        "float": "Number",
        "boolean": "Boolean",
        "list": "Array",
        "set": "Array",
    }
    texts = {"text", "date", "time", "timestamp", "uuid", "bits"}
    return "String" if kind.name in texts else names.get(kind.name, "Object")


# ── what the table is opened with ──


def _tables(spoken: Vocabulary) -> list[str]:
    makers = [f"{property_(item.made.item.name)}: {_makers(item)}," for item in spoken.items]
    entries = []
    for item in spoken.items:
        written = {attribute.name for attribute in item.made.item.attributes}
        lists = (
            listed(part.attribute.name for part in entry.parts if part.attribute.name not in written)
            for entry in item.made.entries
        )
        entries.append(f"{property_(item.made.item.name)}: [{', '.join(lists)}],")
    return [
        "const MAKERS: Record<string, Record<string, (of: never) => string | number | undefined>> = {",
        *block(makers),
        "};",
        "",
        "const ENTRIES: Record<string, readonly (readonly string[])[]> = {",
        *block(entries),
        "};",
        "",
    ]


def _makers(item: Item) -> str:
    """What makes key attributes, those of an index only where its conditions hold."""
    conditional = [
        f"{property_(part.attribute.name)}: (of: {item.type}KeyValues) => "
        f"({entry.holds} ? {member(item.makers, part.attribute.name)}(of) : undefined)"
        for entry in item.made.entries
        if entry.holds
        for part in entry.parts
    ]
    return f"{{ ...{item.makers}, {', '.join(conditional)} }}" if conditional else item.makers


_CLIENT = """/** The table with its models: `openTable(new DynamoDBClient({})).getModel("…")`. */
export function openTable(client: DynamoDBClient, name: string = TABLE) {
  const value = (model: unknown, field: string, properties: Item): string => {
    const made = properties[field] ?? MAKERS[(model as { name: string }).name]?.[field]?.(properties as never);
    return made as string;
  };
  const transform = (model: unknown, operation: string, item: Item): Item => {
    if (operation !== "write") return item;
    for (const names of ENTRIES[(model as { name: string }).name] ?? []) {
      // An item is in an index with all attributes of its key, or with none.
      if (names.some((one) => item[one] === undefined || item[one] === "")) for (const one of names) delete item[one];
    }
    return item;
  };
  return new Table({ name, client: new Dynamo({ client }), schema, value, transform, partial: false, hidden: true });
}

export type OpenTable = ReturnType<typeof openTable>;
"""

_PAGES = """function pages(client: OpenTable, question: Question) {
  return async (partition: KeyValue, next: unknown, size: number | undefined): Promise<Page> => {
    const { sort } = question;
    const properties: Item = { [question.hash]: partition };
    if (sort?.is === "=") properties[sort.name] = sort.values[0];
    else if (sort) properties[sort.name] = { [sort.is]: sort.is === "between" ? sort.values : sort.values[0] };
    const { index, descending: reverse = false, consistent = false } = question;
    const options = { parse: true, hidden: true, reverse, consistent, maxPages: 1, log: false };
    const sized = size === undefined ? {} : { limit: size };
    const from = next === undefined ? {} : { next: next as object };
    const where = index === undefined ? {} : { index };
    const items = await client.queryItems(properties, { ...options, ...sized, ...from, ...where });
    return { items, next: items.next };
  };
}
"""

_GETTER = """function getter(client: OpenTable, consistent: boolean) {
  return (key: Record<string, KeyValue>): Promise<Item | undefined> =>
    client.getItem(key, { parse: true, hidden: true, consistent, log: false });
}
"""
