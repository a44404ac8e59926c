"""Templates of keys as TypeScript: what each key attribute of an item is made of, and the expression that makes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from migrator.features.exports.model import Attribute, ItemType, KeyPart, Model, RowModel
from migrator.features.exports.typescript.language import literal, member, quoted
from migrator.mapping.items.filters import CHARACTERS, unit_of
from migrator.mapping.items.templates import format_width
from migrator.mapping.model.facts import Kind
from migrator.mapping.model.mapping import Condition, Filter, Ref, Template
from migrator.mapping.model.table import KeyAttribute
from migrator.runtime.errors import SettingsError

_TEXTS = frozenset({"text", "uuid", "bits", "date", "time"})
TEXT = Kind("text")


class UnsayableError(Exception):
    """What TypeScript cannot say of one template; the message is a reason, to be gathered with others."""


@dataclass(frozen=True)
class Input:
    """A value that keys are made of. `name`: of an attribute of the item, or of what the caller must add; `stored`: whether
    items hold it."""

    name: str
    kind: Kind
    stored: bool


@dataclass(frozen=True)
class Made:
    """A key attribute. `expression`: of an object `of` with the inputs, undefined where one has no value; `inputs`: their
    names."""

    attribute: KeyAttribute
    expression: str
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class MadeEntry:
    """An item's place in an index. `holds`: an expression that says whether the item is in it; '' where it always is."""

    parts: tuple[Made, ...]
    holds: str


@dataclass(frozen=True)
class ItemKeys:
    """All that an item type's key attributes are made of; `inputs` by name."""

    item: ItemType
    base: tuple[Made, ...]
    entries: tuple[MadeEntry, ...]
    inputs: Mapping[str, Input]


@dataclass(frozen=True)
class Refusals:
    """Why ElectroDB cannot say a mapping: all of it, gathered."""

    reasons: list[str] = field(default_factory=list)

    def add(self, where: str, why: str) -> None:
        self.reasons.append(f"{where}: {why}")

    def check(self) -> None:
        """Raises: SettingsError that names everything."""
        if self.reasons:
            listed = "\n".join(f"  {reason}" for reason in dict.fromkeys(self.reasons))
            raise SettingsError(f"ElectroDB cannot say this mapping:\n{listed}")


Named = Callable[[Ref], tuple[str, Kind, tuple[Filter, ...]]]
"""Of a reference: the expression of its value, its kind, and the filters that are still to be applied."""


@dataclass(frozen=True)
class Around:
    separator: str
    maps: Mapping[str, str]
    """By the mapping's name of a map the constant that holds it."""
    timezone: str | None


def keys_of(model: Model, row: RowModel, item: ItemType, around: Around, refusals: Refusals) -> ItemKeys:
    scope = _Scope(model, row, item)
    where = f"{row.entity.written}.items.{item.name}"

    def part(key: KeyPart) -> Made:
        return _made(scope, key, around, f"{where}.{key.attribute.name}", refusals)

    base = tuple(part(key) for key in item.key)
    entries = tuple(
        MadeEntry(
            tuple(part(one) for one in key.parts),
            " && ".join(scope.holds(condition) for condition in key.when),
        )
        for key in item.indexes
    )
    return ItemKeys(item, base, entries, scope.inputs)


class _Scope:
    """Where an item's references find their values: in its attributes, in keys that are one value, or from the caller."""

    def __init__(self, model: Model, row: RowModel, item: ItemType) -> None:
        self.row, self.item = row, item
        self.inputs: dict[str, Input] = {}
        self._table = model.table
        keys = (*item.key, *(part for key in item.indexes for part in key.parts))
        self._names = {
            model.table.type_attribute,
            *(attribute.name for attribute in item.attributes),
            *(part.attribute.name for part in keys),
        }
        self._sole: dict[str, str] = {}
        for part in keys:
            ref = _sole(part.template)
            if ref is not None and self._kind(ref.paths[0]).name in _SOLE[part.attribute.type]:
                self._sole.setdefault(ref.paths[0], part.attribute.name)

    def input(self, ref: Ref) -> tuple[Input, tuple[Filter, ...]]:
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

    def named(self, ref: Ref) -> tuple[str, Kind, tuple[Filter, ...]]:
        found, filters = self.input(ref)
        return member("of", found.name), found.kind, filters

    def holds(self, condition: Condition) -> str:
        found, _ = self.input(Ref((condition.path,)))
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
    (first, *others) = template.parts or ("",)
    is_sole = not others and isinstance(first, Ref) and not first.filters and not first.format
    return first if is_sole and isinstance(first, Ref) and len(first.paths) == 1 else None


def _made(scope: _Scope, key: KeyPart, around: Around, where: str, refusals: Refusals) -> Made:
    used: list[str] = []

    def named(ref: Ref) -> tuple[str, Kind, tuple[Filter, ...]]:
        found, filters = scope.input(ref)
        used.append(found.name)
        return member("of", found.name), found.kind, filters

    try:
        expression = key_expression(key.template, key.attribute, named, around)
    except UnsayableError as error:
        refusals.add(where, str(error))
        expression = "undefined"
    return Made(key.attribute, expression, tuple(dict.fromkeys(used)))


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
        if used.name in _OF_LIST:
            texts = f"each({value}, (value) => {as_text(inner, of)})"
            if used.name == "depth":
                return f"({value} ?? []).length", Kind("integer"), filters[number + 1 :]
            return _OF_LIST[used.name](texts, used, around), TEXT, filters[number + 1 :]
        inner, of = _applied(used, inner, of, around)
    raise UnsayableError("a list of values")


_OF_LIST: dict[str, Callable[[str, Filter, Around], str]] = {
    "path": lambda texts, used, around: f"path({texts}, {quoted(around.separator)})",
    "first": lambda texts, used, around: f"at({texts}, 1)",
    "at": lambda texts, used, around: f"at({texts}, {used.args[0]})",
    "depth": lambda texts, used, around: texts,
}


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
    if used.name == "iso":
        return f"iso({value}, {quoted(','.join(used.args))})", TEXT
    if used.name in ("date", "month", "year", "bucket"):
        return f"bucket({value}, {CHARACTERS[unit_of(used)]})", TEXT
    if used.name == "epoch":
        if around.timezone not in (None, "UTC"):
            raise UnsayableError(f"epoch seconds of times in {around.timezone}")
        return f"epoch({value})", Kind("integer")
    if used.name == "map":
        return f"mapped({as_text(value, kind)}, {around.maps[used.args[0]]})", TEXT
    if used.name in _OF_TEXT:
        if kind.name == "binary":
            raise UnsayableError(f"the filter {used.name} of bytes")
        return _OF_TEXT[used.name](as_text(value, kind), used.args, around), TEXT
    raise UnsayableError(f"the filter {used.name}")


_OF_TEXT: dict[str, Callable[[str, Sequence[str], Around], str]] = {
    "text": lambda text, args, around: text,
    "lower": lambda text, args, around: f"lower({text})",
    "upper": lambda text, args, around: f"upper({text})",
    "trim": lambda text, args, around: f"trimmed({text})",
    "or": lambda text, args, around: f"({text} ?? {quoted(args[0])})",
    "escape": lambda text, args, around: f"escaped({text}, {quoted(around.separator)})",
    "hash": lambda text, args, around: f"hash({text})",
    "shard": lambda text, args, around: f"shard({text}, {args[0]})",
    "desc": lambda text, args, around: f"descending({text})",
}
