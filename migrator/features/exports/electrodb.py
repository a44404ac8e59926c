"""A mapping's items and access patterns as a TypeScript module for ElectroDB (electrodb 3).

Key attributes are attributes of the entity, each the whole of its index key, and the functions `…Keys` make them:
`entity.put({ ...trackKeys(track), ...track })`. ElectroDB's own templates pad by attribute, so that a number that is padded
in one key and bare in another would be written wrong in one of them; and it asks for the table's key before any `set`.
Source: electrodb.dev, "Use an attribute as an index key"; its clauses.js for the order.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import resources

from msgspec import Struct

from migrator.features.exports.definitions import comment, template
from migrator.features.exports.model import Attribute, ItemType, Model, PartModel, PatternModel, RowModel
from migrator.mapping.items.filters import CHARACTERS, FILTERS, unit_of
from migrator.mapping.items.program import Key
from migrator.mapping.items.templates import format_width
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
    paths_in,
)
from migrator.mapping.model.table import Index, KeyAttribute, TableDesign
from migrator.mapping.patterns.requests import MOVED_UP, cut_params
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
    """A scalar of a mapping, a number as JavaScript holds it."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return quoted(value) if isinstance(value, str) else str(value)


def listed(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(quoted, texts))}]"


def property_(name: str) -> str:
    """A name where an object or an interface declares it."""
    return name if _PLAIN_NAME.fullmatch(name) else quoted(name)


def member(of: str, name: str) -> str:
    """The expression of an object's property."""
    return f"{of}.{name}" if _PLAIN_NAME.fullmatch(name) else f"{of}[{quoted(name)}]"


def commented(text: str) -> str:
    """A text within a comment, which it cannot end."""
    return " ".join(text.replace("*/", "*\\/").split())


class Identifiers:
    """Names of functions and types, each given once."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {*_RESERVED.split(), *taken}

    def type(self, name: str) -> str:
        """Order Item, order_item: OrderItem."""
        words = _WORD.findall(name)
        return self._own("".join(word[0].upper() + word[1:] for word in words) or "Item")

    def function(self, name: str) -> str:
        """get_track: getTrack."""
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
    """How the SDK gives a stored value of this kind; times are their ISO 8601 texts."""
    if kind is None:
        return "unknown"
    if kind.name == "list":
        return f"({type_of(kind.element)} | null)[]" if kind.element else "unknown[]"
    if kind.name == "map" and kind.fields:
        fields = "; ".join(f"{property_(name)}?: {type_of(of)}" for name, of in kind.fields)
        return f"{{ {fields} }}"
    if kind.name == "map":
        return f"Record<string, {type_of(kind.element)}>"
    return _TYPES.get(kind.name, "unknown")


# ── runtime.ts ──

_DECLARED = re.compile(r"^(?:async )?(?:function|interface|type|const|export class) (\w+)", re.MULTILINE)


_MODULE_NAMES = "KEY TYPE TTL PLACES createHash DynamoDBClient Entity entities Entities pages getter Asked"


@functools.lru_cache(maxsize=1)
def _declarations() -> dict[str, str]:
    """The parts of runtime.ts by what they declare, in its order."""
    text = resources.files(__package__).joinpath("runtime.ts").read_text(encoding="utf-8")
    return {found[1]: part for part in text.strip().split("\n\n") if (found := _DECLARED.search(part))}


def runtime_names() -> frozenset[str]:
    """Names that a module has anyway."""
    parts = "\n".join(_declarations().values())
    return frozenset({*_DECLARED.findall(parts), *_MODULE_NAMES.split()})


def helpers_of(code: str) -> list[str]:
    """The parts of runtime.ts that the code uses, and those that they use."""
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
    """Functions are known by their call, since attributes may have their names."""
    behind = "[(<]" if f"function {name}" in part else r"\b"
    return re.search(rf"(?<![\w$])(?<![\w$)\]?]\.){name}{behind}", code) is not None


# ── templates of keys ──

_TEXTS = frozenset({"text", "uuid", "bits", "date", "time"})
TEXT = Kind("text")
KEY_TYPES = {"text": "string", "number": "number", "binary": "Uint8Array"}


class UnsayableError(Exception):
    """What TypeScript cannot say of one template; the message is a reason, to be gathered with others."""


class Input(Struct, frozen=True):
    """A value that keys are made of. `name`: of an attribute of the item, or of what the caller must add; `stored`: whether
    items hold it."""

    name: str
    kind: Kind
    stored: bool


class Made(Struct, frozen=True):
    """A key attribute. `expression`: of an object `of` with the inputs, undefined where one has no value; `inputs`: their
    names."""

    name: str
    type: str
    expression: str
    inputs: tuple[str, ...]


class MadeEntry(Struct, frozen=True):
    """An item's place in an index. `holds`: an expression that says whether the item is in it."""

    parts: tuple[Made, ...]
    holds: str


class Item(Struct, frozen=True):
    """An item type as TypeScript calls it, and all that its key attributes are made of. `type`: its interface; `keys`: the
    function that makes its keys; `inputs` by name."""

    made: ItemType
    type: str
    keys: str
    base: tuple[Made, ...]
    entries: tuple[MadeEntry, ...]
    inputs: Mapping[str, Input]

    @property
    def parts(self) -> dict[str, Made]:
        """All of its key attributes by name."""
        return {
            part.name: part for part in (*self.base, *(one for entry in self.entries for one in entry.parts))
        }

    @property
    def needed(self) -> set[str]:
        """Inputs without which it has no key."""
        return {name for part in self.base for name in part.inputs}


class Refusals(Struct, frozen=True):
    """Why ElectroDB cannot say a mapping: all of it, gathered."""

    reasons: list[str] = []

    def add(self, where: str, why: str) -> None:
        self.reasons.append(f"{where}: {why}")

    def check(self) -> None:
        """Raises: SettingsError that names everything."""
        if self.reasons:
            listed = "\n".join(f"  {reason}" for reason in dict.fromkeys(self.reasons))
            raise SettingsError(f"ElectroDB cannot say this mapping:\n{listed}")


Named = Callable[[Ref], tuple[str, Kind, tuple[Filter, ...]]]
"""Of a reference: the expression of its value, its kind, and the filters that are still to be applied."""


class Around(Struct, frozen=True):
    separator: str
    maps: Mapping[str, str]
    """By the mapping's name of a map the constant that holds it."""
    timezone: str | None


def item_of(
    model: Model, row: RowModel, item: ItemType, type_: str, keys: str, around: Around, refusals: Refusals
) -> Item:
    scope = _Scope(model, row, item)
    where = f"{row.entity.written}.items.{item.name}"

    def made(part: Key) -> Made:
        try:
            expression, used = scope.made(part, around)
        except UnsayableError as error:
            refusals.add(f"{where}.{part.name}", str(error))
            expression, used = "undefined", ()
        return Made(part.name, KEY_TYPES[part.attribute.type], expression, used)

    base = tuple(map(made, item.key))
    entries = tuple(
        MadeEntry(tuple(map(made, entry.keys)), " && ".join(map(scope.holds, entry.when)) or "true")
        for entry in item.entries
    )
    return Item(item, type_, keys, base, entries, scope.inputs)


class _Scope:
    """Where an item's references find their values: in its attributes, in keys that are one value, or from the caller."""

    def __init__(self, model: Model, row: RowModel, item: ItemType) -> None:
        self.row, self.item = row, item
        self.inputs: dict[str, Input] = {}
        self._table = model.table
        self._names = {
            model.table.type_attribute,
            *(attribute.name for attribute in item.attributes),
            *(part.name for part in item.keys),
        }
        self._sole: dict[str, str] = {}
        for part in item.keys:
            ref = _sole(part.template)
            if ref is not None and self._kind(ref.paths[0]).name in _SOLE[part.attribute.type]:
                self._sole.setdefault(ref.paths[0], part.name)

    def made(self, part: Key, around: Around) -> tuple[str, tuple[str, ...]]:
        """The expression of a key attribute, and the names of its inputs. Raises: UnsayableError."""
        used: list[str] = []

        def named(ref: Ref) -> tuple[str, Kind, tuple[Filter, ...]]:
            found, filters = self._input(ref)
            used.append(found.name)
            return member("of", found.name), found.kind, filters

        return key_expression(part.template, part.attribute, named, around), tuple(dict.fromkeys(used))

    def _input(self, ref: Ref) -> tuple[Input, tuple[Filter, ...]]:
        """What the caller gives for the reference, and the filters that it has not been through."""
        for attribute in self._holding(ref):
            done = len(_ref_of(attribute).filters)
            kind = attribute.kind if done else self._kind(ref.paths[0])
            if kind is not None:
                # A time that went through a filter is the text that the filter made.
                kind = TEXT if done and kind.name == "timestamp" else kind
                return self._add(attribute.name, kind, stored=True), ref.filters[done:]
        path = ref.paths[0]
        if path in self._sole:
            return self._add(self._sole[path], self._kind(path), stored=True), ref.filters
        name = f"row.{path}" if path in self._names else path
        return self._add(name, self._kind(path), stored=False), ref.filters

    def holds(self, condition: Condition) -> str:
        found, _ = self._input(Ref((condition.path,)))
        value = member("of", found.name)
        if condition.allowed is None:
            return f"given({value}) !== undefined"
        return f"among({value}, [{', '.join(map(literal, condition.allowed))}])"

    def _holding(self, ref: Ref) -> list[Attribute]:
        """Attributes that hold the reference's value, after some of its filters; the one after most of them first."""
        found = [
            attribute
            for attribute in self.item.attributes
            if attribute.stored is None
            and (own := _ref_of(attribute)) is not None
            and own.paths == ref.paths
            and own.filters == ref.filters[: len(own.filters)]
            and not (own.filters and ref.format)
        ]
        return sorted(found, key=lambda attribute: -len(_ref_of(attribute).filters))

    def _add(self, name: str, kind: Kind, *, stored: bool) -> Input:
        return self.inputs.setdefault(name, Input(name, kind, stored))

    def _kind(self, path: str) -> Kind:
        head, _, name = path.partition(".")
        for value in self.row.values:
            if value.path == path and not value.children:
                return value.kind
            if value.path == head and value.children:
                child = next(child for child in value.children if child.path == name)
                return Kind("list", element=child.kind)
        return Kind("text") if path == "@schema" else Kind("plain")


_SOLE: Mapping[str, frozenset[str]] = {
    "text": frozenset({"text", "uuid"}),
    "number": frozenset({"integer", "number"}),
    "binary": frozenset(),
}


def _ref_of(attribute: Attribute) -> Ref:
    value = attribute.expression
    return value if isinstance(value, Ref) and value.format is None else Ref(())


def _sole(template: Template) -> Ref | None:
    """The reference that a template is, where it is one and nothing is done to it."""
    return template.sole if template.sole and template.sole.column else None


# ── expressions ──


def key_expression(
    template: Template, attribute: KeyAttribute, named: Named, around: Around, up: bool | None = None
) -> str:
    """The value of a key attribute; `up`: of a bound, where its last number may move. Raises: UnsayableError."""
    if attribute.type == "text":
        return text_expression(template, named, around, up)
    if attribute.type == "binary":
        raise UnsayableError("a binary key")
    (ref,) = template.refs
    value, kind, filters = named(ref)
    for used in filters:
        value, kind = _applied(used, value, kind, around)
    if kind.name not in ("integer", "number", "float"):
        raise UnsayableError("a number key that is made of no number")
    return f"given({value})"


def text_expression(template: Template, named: Named, around: Around, up: bool | None = None) -> str:
    """A template's text, undefined where a value is missing. Raises: UnsayableError."""
    last = template.refs[-1] if template.refs else None
    parts = [
        quoted(part)
        if isinstance(part, str)
        else _of_ref(part, named, around, up if part is last and not part.filters else None)
        for part in template.parts
    ]
    if all(isinstance(part, str) for part in template.parts):
        return quoted("".join(part for part in template.parts if isinstance(part, str)))
    return f"text({', '.join(parts)})"


def _of_ref(ref: Ref, named: Named, around: Around, up: bool | None) -> str:
    if len(ref.paths) > 1 and not ref.every:
        values = [named(Ref((path,)))[0] for path in ref.paths]
        first, *others = ref.filters
        if first.name != "geohash":
            raise UnsayableError(f"the filter {first.name}")
        value, kind, filters = f"geohash({', '.join(values)}, {first.args[0]})", TEXT, tuple(others)
    else:
        value, kind, filters = named(ref)
        if ref.format is not None and kind.name != "list":
            width, decimals = format_width(ref.format)
            padded = f"{value}, {width}, {decimals}"
            value = f"padded({padded})" if up is None else f"bounded({padded}, {str(up).lower()})"
            kind = TEXT
        if kind.name == "list":
            value, kind, filters = _of_list(ref, value, kind, filters, around)
    for used in filters:
        value, kind = _applied(used, value, kind, around)
    return as_text(value, kind)


def _of_list(
    ref: Ref, value: str, kind: Kind, filters: tuple[Filter, ...], around: Around
) -> tuple[str, Kind, tuple[Filter, ...]]:
    """A list's values made one: filters before the one that does it work on each of them."""
    inner, of = "value", kind.element or Kind("plain")
    if ref.format is not None:
        width, decimals = format_width(ref.format)
        inner, of = f"padded(value, {width}, {decimals})", TEXT
    for number, used in enumerate(filters):
        if FILTERS[used.name].of_list:
            texts = f"each({value}, (value) => {as_text(inner, of)})"
            return _called(used, texts, around, value), FILTERS[used.name].gives, filters[number + 1 :]
        inner, of = _applied(used, inner, of, around)
    raise UnsayableError("a list of values")


def as_text(value: str, kind: Kind) -> str:
    """A value's text in a template. Raises: UnsayableError for kinds whose text JavaScript may write otherwise."""
    if kind.name in _TEXTS:
        return value
    if kind.name == "integer":
        return f"whole({value})"
    if kind.name == "number" and kind.scale is not None:
        return f"fixed({value}, {kind.scale})"
    if kind.name == "boolean":
        return f"truth({value})"
    if kind.name == "timestamp":
        return f'iso({value}, "")'
    raise UnsayableError(
        f"the text of a value whose form is not sure ({kind.name}); give it a format or a filter"
    )


def _applied(used: Filter, value: str, kind: Kind, around: Around) -> tuple[str, Kind]:
    spec = FILTERS[used.name]
    if spec.by_timezone and around.timezone not in (None, "UTC"):
        raise UnsayableError(f"epoch seconds of times in {around.timezone}")
    if used.name not in _CALLS or (kind.name == "binary" and not spec.of_map):
        raise UnsayableError(f"the filter {used.name}{' of bytes' * (kind.name == 'binary')}")
    return _called(used, value if spec.takes else as_text(value, kind), around), spec.gives


def _called(used: Filter, value: str, around: Around, of: str = "") -> str:
    args = ",".join(used.args)
    return _CALLS[used.name].format(
        value,
        args,
        of=of,
        map=around.maps.get(args),
        quoted=quoted(args),
        separator=quoted(around.separator),
        characters=CHARACTERS.get(unit_of(used)),
    )


_CALLS = {
    "iso": "iso({0}, {quoted})",
    **dict.fromkeys(("date", "month", "year", "bucket"), "bucket({0}, {characters})"),
    "epoch": "epoch({0})",
    "map": "mapped({0}, {map})",
    "text": "{0}",
    "lower": "lower({0})",
    "upper": "upper({0})",
    "trim": "trimmed({0})",
    "or": "({0} ?? {quoted})",
    "escape": "escaped({0}, {separator})",
    "hash": "hash({0})",
    "shard": "shard({0}, {1})",
    "desc": "descending({0})",
    "path": "path({0}, {separator})",
    "first": "at({0}, 1)",
    "at": "at({0}, {1})",
    "depth": "({of} ?? []).length",
}
"""By filter the call of a value, its text or a list's texts. {1}: the filter's argument; {of}: the list."""


# ── access patterns ──

_OPERATORS: Mapping[Operator, str] = {
    "equal": "=",
    "begins_with": "begins_with",
    "between": "between",
    "ge": ">=",
    "gt": ">",
    "le": "<=",
    "lt": "<",
}


class Asked(Struct, frozen=True):
    """A pattern's function. `question`: the fields of what a query asks, none where whole keys are asked; `items`: the
    expression of what DynamoDB answers; `cut`: by parameter how much of it a key holds."""

    model: PatternModel
    function: str
    title: str
    question: tuple[str, ...]
    items: str
    cut: Mapping[str, str]

    @property
    def answer(self) -> str:
        """Its type."""
        first, *_ = parts = self.model.parts
        if not first.part.name:
            return f"{self.record(first)}{' | undefined' if self.model.pattern.operation == 'get' else '[]'}"
        fields = (
            f"{property_(part.part.name)}{'?' if part.part.one else ''}: "
            f"{self.record(part)}{'' if part.part.one else '[]'}"
            for part in parts
        )
        return f"{{ {'; '.join(fields)} }}"

    def record(self, part: PartModel) -> str:
        """The type of a part's records."""
        return f"{self.title}{Identifiers().type(part.part.name) if part.part.name else ''}Record"

    def picked(self, part: PartModel) -> str:
        """The expression of a part's records."""
        one = part.part.one if part.part.name else self.model.pattern.operation == "get"
        type_ = f", {quoted(part.part.type)}" if part.part.type else ""
        return (
            f"picked<{self.record(part)}>(items, {listed(part.part.attributes)}{type_}){'[0]' if one else ''}"
        )


def asked_of(model: PatternModel, function: str, title: str, around: Around) -> Asked:
    """Raises: UnsayableError."""
    writer = _Writer(model, around)
    question: tuple[str, ...] = ()
    if model.pattern.operation == "query":
        question, items = tuple(writer.question()), writer.queried()
    else:
        items = writer.keys()
    cut = {name: str(CHARACTERS[unit]) for name, unit in cut_params(model.pattern).items()}
    return Asked(model, function, title, question, items, cut)


def checked_type(param: Param) -> str:
    return f"{param.type}{'[]' if param.many else ''}{'?' if param.optional else ''}"


def param_type(param: Param) -> str:
    one = type_of(Kind(param.type))
    return f"{f'readonly {one}[]' if param.many else one}{' | null' if param.optional else ''}"


def _bounds(name: str, values: Sequence[Expression], made: Iterable[str]) -> str:
    """The values of a condition; of two bounds with parameters none may be unset alone."""
    listed_values = f"[{', '.join(made)}]"
    is_pair = len(values) > 1 and all(any(paths_in([one])) for one in values)
    return f"both({quoted(name)}, {listed_values})" if is_pair else listed_values


def _needed(name: str) -> str:
    return f"must({quoted(name)}, given({member('params', name)}))"


class _Writer:
    """Expressions of one pattern. Raises: UnsayableError."""

    def __init__(self, asked: PatternModel, around: Around) -> None:
        self.index, self.pattern, self.around = asked.index, asked.pattern, around
        self.params = {param.name: param for param in asked.pattern.params}
        self.many = ""
        self._key = partial(key_expression, named=self._named, around=around)

    def question(self) -> Iterator[str]:
        """Fields of the object that a query is."""
        index, pattern = self.index, self.pattern
        (hash_,), (template,) = index.partition, pattern.key
        if index.name:
            yield f"index: {quoted(index.name)}"
        yield f"hash: {quoted(hash_.name)}"
        elements, given = ('[""]', "") if pattern.star is None else (self._texts(pattern.star), "every")
        made = f"{{ {property_(hash_.name)}: {self._key(template, hash_)} }}"
        yield f"partitions: keysOf({elements}, ({given}) => ({made}))"
        if pattern.sort:
            (sort,), (condition,) = index.sort, pattern.sort
            bounds = zip(condition.values, MOVED_UP.get(condition.operator, (None,)), strict=True)
            parts = [self._key(value, sort, up=up) for value, up in bounds]
            sort_values = _bounds(sort.name, condition.values, parts)
            yield f"sort: sortedBy({quoted(sort.name)}, {quoted(_OPERATORS[condition.operator])}, () => {sort_values})"
        yield f"order: {listed(attribute.name for attribute in index.sort)}"
        if pattern.descending:
            yield "descending: true"
        if pattern.limit is not None and pattern.near is None:
            yield f"limit: {self._limit(pattern.limit)}"
        if pattern.consistent:
            yield "consistent: true"
        if pattern.filters:
            yield f"filters: [{', '.join(self._filters())}]"

    def queried(self) -> str:
        """What the question is answered with."""
        asked = "await ask(question, pages(client, question))"
        near, star, limit = self.pattern.near, self.pattern.star, self.pattern.limit
        if near is None or star is None:
            return asked
        within = _needed(near.within_m) if isinstance(near.within_m, str) else str(near.within_m)
        origin = ", ".join(map(_needed, near.origin))
        found = f"nearest({asked}, KEY, [{origin}], {listed(near.at)}, {within}, {star.filters[0].args[0]})"
        return found if limit is None else f"{found}.slice(0, {self._limit(limit)})"

    def _texts(self, star: Ref) -> str:
        """The texts that a `*` stands for."""
        (used,) = star.filters
        values = ", ".join(map(_needed, star.paths))
        if used.name == "shard":
            return f"shards({used.args[0]})"
        if used.name == "geohash":
            return f"cellsAround({values}, {used.args[0]})"
        return f"bucketsBetween({values}, {CHARACTERS[unit_of(used)]})"

    def _limit(self, limit: str) -> str:
        return limit if limit.isdecimal() else f"limitOf({member('params', limit)})"

    def _filters(self) -> Iterator[str]:
        for condition in self.pattern.filters:
            values = _bounds(condition.attribute, condition.values, map(self._value, condition.values))
            is_ = quoted(_OPERATORS[condition.operator])
            yield f"{{ name: {quoted(condition.attribute)}, is: {is_}, values: {values} }}"

    def _value(self, value: Expression) -> str:
        match value:
            case Const():
                return literal(value.value)
            case Ref(filters=(), format=None):
                expression, kind, _ = self._named(value)
                return as_text(expression, kind) if kind.name == "timestamp" else f"given({expression})"
            case Ref():
                return text_expression(Template((value,)), self._named, self.around)
            case Template():
                return text_expression(value, self._named, self.around)
            case _:
                raise UnsayableError("a filter by a map or a list")

    def keys(self) -> str:
        """What `get` and `batch_get` are answered with: items of whole keys."""
        pattern = self.pattern
        used = set(paths_in(pattern.templates))
        self.many = next((param.name for param in pattern.params if param.many and param.name in used), "")
        fields = ", ".join(
            f"{property_(name.name)}: {self._key(template, name)}"
            for name, template in zip(self.index.attributes, pattern.templates, strict=True)
        )
        elements, given = (member("params", self.many), "each") if self.many else ('[""]', "")
        made = f"keysOf({elements}, ({given}) => ({{ {fields} }}))"
        return f"await askKeys({made}, getter(client, {str(pattern.consistent).lower()}))"

    def _named(self, ref: Ref) -> tuple[str, Kind, tuple[Filter, ...]]:
        if ref.every:
            return "every", TEXT, ()
        name = ref.paths[0]
        kind = Kind(self.params[name].type)
        value = "each" if name == self.many else member("params", name)
        if kind.name == "binary":
            raise UnsayableError(f"the parameter {name} of bytes")
        normal = {"date": f"bucket({value}, 10)", "uuid": f"lower({value})"}
        return normal.get(kind.name, value), kind, ref.filters


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def electrodb_typescript(model: Model, head: Sequence[str]) -> str:
    """Raises: SettingsError naming all that ElectroDB cannot say."""
    refusals, names = Refusals(), Identifiers(runtime_names())
    maps = {name: f"MAP_{number}" for number, name in enumerate(model.around.maps, 1)}
    around = Around(model.table.separator, maps, model.around.timezone)
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


class Field(Struct, frozen=True):
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
