"""A mapping's items and access patterns as a TypeScript module for ElectroDB (electrodb 3).

Key attributes are attributes of the entity, each the whole of its index key, and the functions `…Keys` make them:
`entity.put({ ...trackKeys(track), ...track })`. ElectroDB's own templates pad by attribute, so that a number that is padded
in one key and bare in another would be written wrong in one of them; and it asks for the table's key before any `set`.
Source: electrodb.dev, "Use an attribute as an index key"; its clauses.js for the order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from msgspec import Struct

from migrator.features.exports.file import comment, template
from migrator.features.exports.model import Model, PartModel, PatternModel
from migrator.features.exports.typescript.keys import (
    INHERITED,
    TEXT,
    Around,
    Identifiers,
    Item,
    Refusals,
    UnsayableError,
    as_text,
    commented,
    helpers_of,
    item_of,
    key_expression,
    listed,
    literal,
    member,
    property_,
    quoted,
    runtime_names,
    text_expression,
    type_of,
)
from migrator.mapping.items.filters import CHARACTERS, unit_of
from migrator.mapping.model.facts import Kind
from migrator.mapping.model.mapping import Const, Expression, Filter, Operator, Param, Ref, Template, paths_in
from migrator.mapping.model.table import Index, TableDesign
from migrator.mapping.patterns.requests import MOVED_UP, cut_params

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
