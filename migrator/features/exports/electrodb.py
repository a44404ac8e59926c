"""A mapping's items and access patterns as a TypeScript module for ElectroDB (electrodb 3).

Key attributes are entity attributes, each the whole of its index key, made by the functions `…Keys`:
`entity.put({ ...trackKeys(track), ...track })`. ElectroDB's own templates pad by attribute, so a number
padded in one key and bare in another would be wrong in one; and it needs the table's key before any `set`.
Source: electrodb.dev, "Use an attribute as an index key"; its clauses.js for the order.
"""

from __future__ import annotations

import functools
import json
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import resources

from msgspec import Struct

from migrator.cli.template import text_template
from migrator.features.exports.definitions import comment
from migrator.features.exports.model import (
    TEXT,
    Expressions,
    ItemAttribute,
    ItemType,
    Model,
    PatternModel,
    Piece,
    RowModel,
    UnsaidError,
)
from migrator.mapping.items.filters import FILTERS, unit_of
from migrator.mapping.items.program import Key
from migrator.mapping.model.facts import Kind, KindName
from migrator.mapping.model.mapping import (
    Condition,
    Const,
    Expression,
    Filter,
    Operator,
    Param,
    Ref,
    Template,
)
from migrator.mapping.model.table import Index, KeyAttribute, TableDesign
from migrator.mapping.patterns.requests import cut_params
from migrator.runtime.errors import SettingsError

# ── names and values as TypeScript has them ──

_PLAIN_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_WORD = re.compile(r"[0-9A-Za-z]+")
_RESERVED = """
abstract any arguments as async await boolean break case catch class const continue debugger declare default
delete do else enum eval export extends false finally for from function get if implements import in instanceof
interface is let module namespace never new null number object package private protected public return set
static string super switch symbol this throw true try type typeof undefined unknown var void while with yield
"""
_OF_EVERY_OBJECT = """
__defineGetter__ __defineSetter__ __lookupGetter__ __lookupSetter__ __proto__ constructor hasOwnProperty isPrototypeOf
propertyIsEnumerable toLocaleString toString valueOf
"""
INHERITED = frozenset(_OF_EVERY_OBJECT.split())
"""Names that every object of JavaScript has: libraries that look whether an object has a field find these in all."""

_TYPES: dict[KindName, str] = {
    "integer": "number",
    "number": "number",
    "float": "number",
    "text": "string",
    "boolean": "boolean",
    "date": "string",
    "time": "string",
    "timestamp": "string",
    "uuid": "string",
    "bits": "string",
    "binary": "Uint8Array",
    "set": "string[]",
}


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def literal(value: object) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return quoted(value) if isinstance(value, str) else str(value)


def listed(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(quoted, texts))}]"


def property_(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else quoted(name)


def member(of: str, name: str) -> str:
    return f"{of}.{name}" if _PLAIN_NAME.fullmatch(name) else f"{of}[{quoted(name)}]"


def commented(text: str) -> str:
    return " ".join(text.replace("*/", "*\\/").split())


class Identifiers:
    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {*_RESERVED.split(), *taken}

    def type(self, name: str) -> str:
        words = _WORD.findall(name)
        return self._own("".join(word[0].upper() + word[1:] for word in words) or "Item")

    def function(self, name: str) -> str:
        first, *others = _WORD.findall(name) or ["ask"]
        return self._own(
            first[0].lower() + first[1:] + "".join(word[0].upper() + word[1:] for word in others)
        )

    def _own(self, wanted: str) -> str:
        base = wanted if wanted[0].isalpha() else f"T{wanted}"
        name = next(
            name for name in (base, *(f"{base}{n}" for n in range(2, 10_000))) if name not in self._taken
        )
        self._taken.add(name)
        return name


def type_of(kind: Kind | None) -> str:
    """How the SDK returns a stored value of this kind; times are ISO 8601 texts."""
    if kind is None:
        return "unknown"
    if kind.distinct:
        return f"Set<{type_of(kind.element)}>"
    if kind.name == "list":
        return f"({type_of(kind.element)} | null)[]" if kind.element else "unknown[]"
    if kind.name == "map" and kind.fields:
        fields = "; ".join(f"{property_(name)}?: {type_of(of)}" for name, of in kind.fields)
        return f"{{ {fields} }}"
    if kind.name == "map":
        return f"Record<string, {type_of(kind.element)}{' | null' if kind.element else ''}>"
    return _TYPES.get(kind.name, "unknown")


# ── runtime.ts ──

_DECLARED = re.compile(r"^(?:async )?(?:function|interface|type|const|export class) (\w+)", re.MULTILINE)


_MODULE_NAMES = "KEY TYPE TTL PLACES createHash DynamoDBClient Entity entities Entities pages getter Asked"


@functools.lru_cache(maxsize=1)
def _declarations() -> dict[str, str]:
    text = resources.files(__package__).joinpath("runtime.ts").read_text(encoding="utf-8")
    return {found[1]: part for part in text.strip().split("\n\n") if (found := _DECLARED.search(part))}


def runtime_names() -> frozenset[str]:
    parts = "\n".join(_declarations().values())
    return frozenset({*_DECLARED.findall(parts), *_MODULE_NAMES.split()})


def helpers_of(code: str) -> list[str]:
    parts = _declarations()
    used: set[str] = set()
    waiting = [code]
    while waiting:
        text = waiting.pop()
        found = {name for name, part in parts.items() if name not in used and _uses(text, name, part)}
        used |= found
        waiting += [parts[name] for name in found]
    return [part for name, part in parts.items() if name in used]


def _uses(code: str, name: str, part: str) -> bool:
    """Functions are found by their call, since attributes may have their names."""
    behind = "[(<]" if f"function {name}" in part else r"\b"
    return re.search(rf"(?<![\w$])(?<![\w$)\]?]\.){name}{behind}", code) is not None


# ── expressions ──

_TEXTS = frozenset({"text", "uuid", "bits", "date", "time"})
_KEY_TYPES = {"text": "string", "number": "number", "binary": "Uint8Array"}
_CALLS = {
    "iso": "iso({0}, {quoted})",
    **dict.fromkeys(("date", "week", "month", "quarter", "year", "bucket"), "bucket({0}, {unit})"),
    "epoch": "epoch({0}, {quoted})",
    "map": "mapped({0}, {map})",
    "text": "{0}",
    "lower": "lower({0})",
    "upper": "upper({0})",
    "trim": "trimmed({0})",
    "rtrim": "trimmedEnd({0})",
    "or": "({0} ?? {quoted})",
    "escape": "escaped({0}, {separator})",
    "hash": "hash({0})",
    "shard": "shard({0}, {1})",
    "desc": "descending({0})",
    "path": "path({0}, {separator})",
    "first": "at({0}, 1)",
    "at": "at({0}, {1})",
    "depth": "({of} ?? []).length",
    "geohash": "geohash({0}, {1})",
}
"""By filter, the call for a value, its text or a list's texts. {1}: the filter's argument; {of}: the list."""


_FUNCTIONS = {
    "bound": "bounded",
    "buckets": "bucketsBetween",
    "cells": "cellsAround",
    "limit": "limitOf",
    "any_of": "anyOf",
}
"""Functions of expressions that have other names here."""


class TypeScript(Expressions):
    """Expressions with functions that return undefined for a missing value. `maps`: constants by map name."""

    def __init__(self, model: Model, star: str = "every") -> None:
        self.around, self.star = model.around, star
        self.maps = maps_of(model)

    @abstractmethod
    def named(self, ref: Ref) -> tuple[Piece, Sequence[Filter]]:
        """The value of a reference of one path, and the filters still to apply."""

    def given(self, ref: Ref) -> tuple[Piece, Sequence[Filter]]:
        if len(ref.paths) == 1:
            return self.named(ref)
        pieces = [self.named(Ref((path,)))[0] for path in ref.paths]
        return Piece(", ".join(piece.code for piece in pieces), pieces[0].kind), ref.filters

    def literal(self, value: object) -> str:
        return literal(value)

    def joined(self, texts: Sequence[str]) -> str:
        return self.call("text", *texts)

    def call(self, name: str, *arguments: str) -> str:
        return f"{_FUNCTIONS.get(name, name)}({', '.join(arguments)})"

    def param(self, name: str) -> str:
        return member("params", name)

    def needed(self, name: str) -> str:
        return f"must({quoted(name)}, given({self.param(name)}))"

    def listed(self, name: str) -> str:
        return self.param(name)

    def unit(self, used: Filter) -> str:
        return quoted(unit_of(used))

    def text(self, piece: Piece) -> str:
        value, kind = piece.code, piece.kind
        if kind.name in _TEXTS:
            return value
        forms = {"integer": "whole({})", "boolean": "truth({})", "timestamp": 'iso({}, "")'}
        forms |= {"number": f"fixed({{}}, {kind.scale})"} if kind.scale is not None else {}
        if kind.name not in forms:
            what = f"the text of a value whose form is not sure ({kind.name})"
            raise UnsaidError(f"{what}; give it a format or a filter")
        return forms[kind.name].format(value)

    def each(self, values: Piece, element: Piece) -> Piece:
        return Piece(f"each({values.code}, (value) => {self.text(element)})", values.kind, element=values)

    def called(self, used: Filter, piece: Piece) -> Piece:
        spec, args = FILTERS[used.name], ",".join(used.args)
        if spec.by_timezone and self.around.timezone not in (None, "UTC"):
            raise UnsaidError(f"the epoch of times in {self.around.timezone}")
        if used.name not in _CALLS or (piece.kind.name == "binary" and not spec.of_map):
            raise UnsaidError(f"the filter {used.name}{' of bytes' * (piece.kind.name == 'binary')}")
        code = _CALLS[used.name].format(
            piece.code if spec.takes or spec.of_list else self.text(piece),
            args,
            of=piece.element.code if piece.element else "",
            map=self.maps.get(args),
            quoted=quoted(args),
            separator=quoted(self.around.separator),
            unit=self.unit(used),
        )
        return Piece(code, spec.gives)

    def key(self, template: Template, attribute: KeyAttribute, up: bool | None = None) -> str:
        if attribute.type == "text":
            return self.template(template, up).code
        if attribute.type == "binary":
            raise UnsaidError("a binary key")
        piece = self.ref(template.refs[0])
        if piece.kind.name not in ("integer", "number", "float"):
            raise UnsaidError("a number key that is made of no number")
        return f"given({piece.code})"

    def value(self, value: Expression) -> str:
        match value:
            case Const():
                return literal(value.value)
            case Ref(filters=(), format=None):
                piece, _ = self.given(value)
                return self.text(piece) if piece.kind.name == "timestamp" else f"given({piece.code})"
            case Ref():
                return self.template(Template((value,))).code
            case Template():
                return self.template(value).code
            case _:
                raise UnsaidError("a filter by a map or a list")


def maps_of(model: Model) -> dict[str, str]:
    return {name: f"MAP_{number}" for number, name in enumerate(model.around.maps, 1)}


# ── items ──


class Input(Struct, frozen=True):
    """`name`: of an item's attribute, or of one that the caller must add. `stored`: items contain it."""

    name: str
    kind: Kind
    stored: bool


class ItemCode(TypeScript):
    """An item type in TypeScript, and the inputs of its keys.

    `type`: its interface.
    `keys`: the function that makes its keys.
    `inputs`: by name.
    `parts`: by key attribute, its expression over an object `of` with the inputs (undefined if one has no
      value), and their names.
    """

    def __init__(
        self, model: Model, row: RowModel, item: ItemType, names: Identifiers, refusals: list[str]
    ) -> None:
        super().__init__(model)
        self.made, self.type = item, names.type(item.called)
        self.keys = names.function(f"{self.type} keys")
        self.inputs: dict[str, Input] = {}
        self._row = row
        self._taken = {
            model.table.type_attribute,
            *(attribute.name for attribute in item.attributes),
            *(part.name for part in item.keys),
        }
        self._sole: dict[str, str] = {}
        for part in item.keys:
            path = part.template.sole.column if part.template.sole else ""
            if path and self._kind(path).name in _SOLE[part.attribute.type]:
                self._sole.setdefault(path, part.name)
        self._used: list[str] = []
        self.parts = {part.name: self._part(part, row, refusals) for part in item.keys}
        self.entries = [
            (entry.keys, " && ".join(map(self._holds, entry.when)) or "true") for entry in item.entries
        ]

    @property
    def required(self) -> set[str]:
        return {name for part in self.made.key for name in self.parts[part.name][1]}

    def _part(self, part: Key, row: RowModel, refusals: list[str]) -> tuple[str, list[str]]:
        self._used = []
        try:
            return self.key(part.template, part.attribute), self._used
        except UnsaidError as error:
            refusals.append(f"{row.entity.written}.items.{self.made.name}.{part.name}: {error}")
            return "undefined", []

    def named(self, ref: Ref) -> tuple[Piece, Sequence[Filter]]:
        found, filters = self._input(ref)
        self._used.append(found.name)
        element = Piece("value", found.kind.element or Kind("plain")) if found.kind.name == "list" else None
        return Piece(member("of", found.name), found.kind, element=element), filters

    def _input(self, ref: Ref) -> tuple[Input, Sequence[Filter]]:
        """The caller's value, and the filters still to apply."""
        path = ref.paths[0]
        for attribute, done in self._holding(ref):
            kind = attribute.kind if done else self._kind(path)
            if kind is not None:
                # A time that went through a filter is the text that the filter made.
                kind = TEXT if done and kind.name == "timestamp" else kind
                return self._add(attribute.name, kind, stored=True), ref.filters[done:]
        if path in self._sole:
            return self._add(self._sole[path], self._kind(path), stored=True), ref.filters
        return self._add(
            f"row.{path}" if path in self._taken else path, self._kind(path), stored=False
        ), ref.filters

    def _holds(self, condition: Condition) -> str:
        found, _ = self._input(Ref((condition.path,)))
        value = member("of", found.name)
        if condition.allowed is None:
            return f"given({value}) !== undefined"
        return f"among({value}, [{', '.join(map(literal, condition.allowed))}])"

    def _holding(self, ref: Ref) -> list[tuple[ItemAttribute, int]]:
        """Attributes with the reference's value after some of its filters; the one after most of them first."""
        found = []
        for attribute in self.made.attributes:
            own = attribute.expression
            if isinstance(own, Ref) and own.format is None and own.paths == ref.paths:
                done = len(own.filters)
                if own.filters == ref.filters[:done] and not (done and ref.format):
                    found.append((attribute, done))
        return sorted(found, key=lambda one: -one[1])

    def _add(self, name: str, kind: Kind, *, stored: bool) -> Input:
        return self.inputs.setdefault(name, Input(name, kind, stored))

    def _kind(self, path: str) -> Kind:
        head, _, name = path.partition(".")
        for value in self._row.values:
            if value.path == path and not value.children:
                return value.kind
            if value.path == head and value.children:
                child = next(child for child in value.children if child.path == name)
                return Kind("list", element=child.kind)
        return TEXT if path == "@schema" else Kind("plain")


_SOLE: Mapping[str, frozenset[str]] = {
    "text": frozenset({"text", "uuid"}),
    "number": frozenset({"integer", "number"}),
    "binary": frozenset(),
}
"""By type of a key attribute, the kinds of a value that is the whole key."""


def vocabulary(model: Model, names: Identifiers, refusals: list[str]) -> list[ItemCode]:
    items: dict[str, ItemCode] = {}
    for row, item in ((each, item) for each in model.rows for item in each.items):
        if item.called in items:
            where = f"{row.entity.written}.items.{item.name}"
            refusals.append(f"{where}: several entities or schemas make items of this type")
        else:
            items[item.called] = ItemCode(model, row, item, names, refusals)
    return list(items.values())


def fields_of(table: TableDesign, item: ItemCode) -> dict[str, tuple[str, bool]]:
    """A stored item's attributes, except our own: type, and whether every item has it."""
    own = item.made
    fields = {part.name: (_KEY_TYPES[part.attribute.type], True) for part in own.key}
    fields[table.type_attribute] = (quoted(own.name), True)
    for part in own.keys:
        fields.setdefault(part.name, (_KEY_TYPES[part.attribute.type], False))
    for attribute in own.attributes:
        type_ = "unknown" if attribute.stored else type_of(attribute.kind)
        fields.pop(attribute.name, None)
        fields[attribute.name] = (type_, attribute.required)
    if own.expiry and table.ttl:
        fields.setdefault(table.ttl, ("number", False))
    return fields


def indexes_of(table: TableDesign, item: ItemCode) -> dict[str, Index]:
    """The table and the indexes that the item is in, by their ElectroDB names."""
    names = set(fields_of(table, item))
    found = {index.name: index for index in table.indexes if {key.name for key in index.attributes} <= names}
    primary = table.asked(None)
    assert primary is not None, "the table is an index without a name"
    return {"primary": primary, **found}


def _places(table: TableDesign, items: Sequence[ItemCode]) -> Mapping[str, str]:
    """For each index an item type in it, through whose entity queries go."""
    found: dict[str, str] = {}
    for item in items:
        found = dict.fromkeys(indexes_of(table, item), item.made.called) | found
    return found


# ── access patterns ──

_OPERATORS: Mapping[Operator, str] = {
    "equal": "=",
    "begins_with": "begins_with",
    "between": "between",
    "ge": ">=",
    "gt": ">",
    "le": "<=",
    "lt": "<",
    "exists": "exists",
    "absent": "absent",
}


class PatternFunction(TypeScript):
    """`records`: by part, the type of its records. `cut`: by parameter, the unit that a key holds."""

    def __init__(self, model: Model, asked: PatternModel, names: Identifiers) -> None:
        super().__init__(model, star="each" if asked.many else "every")
        self.model, self.pattern = asked, asked.pattern
        self.function, self.title = names.function(self.pattern.name), names.type(self.pattern.name)
        self.records = {
            part.name: f"{self.title}{Identifiers().type(part.name) if part.name else ''}Record"
            for part in self.pattern.parts
        }
        self.cut = cut_params(self.pattern)
        self._params = {param.name: param for param in self.pattern.params}
        self.asks = self.request(asked)

    def named(self, ref: Ref) -> tuple[Piece, Sequence[Filter]]:
        name = ref.paths[0]
        kind = Kind(self._params[name].type)
        value = "each" if name == self.model.many else self.param(name)
        if kind.name == "binary":
            raise UnsaidError(f"the parameter {name} of bytes")
        normal = {"date": f'bucket({value}, "day")', "uuid": f"lower({value})"}
        return Piece(normal.get(kind.name, value), kind), ref.filters


def param_type(param: Param) -> str:
    one = type_of(Kind(param.type))
    return f"{f'readonly {one}[]' if param.many else one}{' | null' if param.optional else ''}"


# ── the module ──

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HELPERS = "// ── what the functions above are made of ──"


def electrodb_typescript(model: Model, head: Sequence[str]) -> str:
    """Raises: SettingsError naming all that ElectroDB cannot express."""
    refusals: list[str] = []
    names = Identifiers(runtime_names())
    items = vocabulary(model, names, refusals)
    _refuse(model.table, items, refusals)
    patterns = list(_asked(model, names, refusals))
    if refusals:
        reasons = "\n".join(f"  {reason}" for reason in dict.fromkeys(refusals))
        raise SettingsError(f"ElectroDB cannot express this mapping:\n{reasons}")
    known = {
        "model": model,
        "table": model.table,
        "maps": maps_of(model),
        "items": items,
        "patterns": patterns,
    }
    functions = {
        "fields_of": fields_of,
        "indexes_of": indexes_of,
        "places": _places(model.table, items),
        "operators": _OPERATORS,
    }
    code = text_template(__package__, "electrodb.ts.j2", **_FILTERS).render(known | functions).strip()
    helpers = "\n\n".join(helpers_of(code))
    crypto = 'import { createHash } from "node:crypto";\n' if "createHash(" in helpers else ""
    return f"{comment('//', head)}\n{crypto}{code}\n\n{_HELPERS}\n\n{helpers}\n"


_FILTERS: Mapping[str, Callable[..., str]] = {
    "quoted": quoted,
    "listed": listed,
    "property": property_,
    "member": member,
    "commented": commented,
    "type_of": type_of,
    "param_type": param_type,
}


def _refuse(table: TableDesign, items: Sequence[ItemCode], refusals: list[str]) -> None:
    for index in table.indexes:
        if _is_wide(index):
            refusals.append(f"table.indexes.{index.name}: a key of several attributes")
    for where, name in (
        (f"{item.made.name}.{name}", name) for item in items for name in fields_of(table, item)
    ):
        if name in INHERITED:
            refusals.append(f"{where}: every object of JavaScript has a property of this name")
        if not _NAME.fullmatch(name):
            refusals.append(
                f"{where}: ElectroDB allows only letters, digits and _; name the attribute otherwise"
            )
    for key in table.key:
        if key.type != "text":
            refusals.append(f"table.key.{key.name}: ElectroDB's keys are texts here, not {key.type}")
    if not items:
        refusals.append("entities: the mapping makes no items")


def _is_wide(index: Index) -> bool:
    return len(index.partition) > 1 or len(index.sort) > 1


def _asked(model: Model, names: Identifiers, refusals: list[str]) -> Iterator[PatternFunction]:
    for pattern in model.patterns:
        if not _is_wide(pattern.index):  # the index itself is refused
            try:
                yield PatternFunction(model, pattern, names)
            except UnsaidError as error:
                refusals.append(f"access_patterns.{pattern.pattern.name}: {error}")
