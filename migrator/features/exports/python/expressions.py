"""Templates and expressions of a mapping as Python, from the parsed parts that the heart compiles; and names as Python's."""

from __future__ import annotations

import inspect
import json
import keyword
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from msgspec import Struct

from migrator.features.exports.python import values
from migrator.mapping.items.filters import FILTERS, FilterContext, specs_of
from migrator.mapping.items.templates import format_width
from migrator.mapping.model.facts import Kind
from migrator.mapping.model.mapping import (
    Const,
    Each,
    Expression,
    Filter,
    MapOf,
    Ref,
    Stored,
    Template,
)
from migrator.mapping.model.table import KeyAttribute

# ── names ──

_RESERVED = """
Any Decimal UUID dt Sequence Mapping str int float bool bytes list dict
self cls item row before after p made child cursor size
"""
RESERVED = frozenset(_RESERVED.split())
"""Names that annotations, and what is generated around others' names, need as they are."""


class Names:
    """Names of one scope, each given once."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken) | RESERVED

    def one(self, wanted: str) -> str:
        """The wanted name, or the next that is free: with an underscore, then with a number behind it."""
        name, number = wanted, 1
        while name in self._taken or keyword.iskeyword(name):
            name = f"{wanted}_" if number == 1 else f"{wanted}_{number}"
            number += 1
        self._taken.add(name)
        return name

    def all(self, wanted: Iterable[str]) -> dict[str, str]:
        return {text: self.one(identifier(text)) for text in wanted}


def identifier(text: str) -> str:
    """The text as a name: `1st` is n_1st, `Order ID` Order_ID; without the leading underscores that Python has a use for."""
    plain = re.sub(r"\W+", "_", unicodedata.normalize("NFKC", text)).strip("_") or "value"
    return plain if plain.isidentifier() else f"n_{plain}"


def class_name(text: str) -> str:
    """OrderItem for order_item, `order item` and OrderItem."""
    words = [word for word in re.split(r"_+", identifier(text)) if word]
    joined = "".join(word[0].upper() + word[1:] for word in words)
    return joined if joined.isidentifier() else f"N{joined}"


def function_name(text: str) -> str:
    """order_item for OrderItem."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", identifier(text)).lower()
    return re.sub(r"_+", "_", apart)


def shown(text: str) -> str:
    """A name as it can stand in a comment or a docstring."""
    return json.dumps(text, ensure_ascii=False).replace("\\", "/").replace('"', "'")


# ── types ──

TYPES = {
    "integer": "int",
    "number": "Decimal",
    "float": "float",
    "text": "str",
    "bits": "str",
    "boolean": "bool",
    "date": "dt.date",
    "time": "dt.time",
    "timestamp": "dt.datetime",
    "uuid": "UUID",
    "binary": "bytes",
    "set": "list[str]",
    "map": "dict[str, Any]",
}


def type_of(kind: Kind | None) -> str:
    """The annotation of a value of the kind; Any where it is not known."""
    if kind is not None and kind.name == "list":
        # Arrays in arrays are of one kind in the source's catalogue.
        return "list[Any]"
    return TYPES.get(kind.name, "Any") if kind is not None else "Any"


def optional(annotation: str, *, nullable: bool) -> str:
    return f"{annotation} | None" if nullable and annotation != "Any" else annotation


def literal(value: Any) -> str:
    """A constant of the mapping as Python."""
    if isinstance(value, str):
        quote = "'" if value.count('"') > value.count("'") else '"'
        inner = repr(f"{value}'\"")[1:-4]  # of a text with both, so that ' alone is escaped
        return f'"{_OF_DOUBLE.sub(_requoted, inner)}"' if quote == '"' else f"'{inner}'"
    if isinstance(value, Decimal):
        return f"Decimal({literal(str(value))})"
    if isinstance(value, Mapping):
        return (
            "{"
            + ", ".join(f"{literal(name)}: {literal(inner)}" for name, inner in value.items())
            + "}"
        )
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(literal, value))}]"
    return repr(value)


def tuple_of(texts: Iterable[str]) -> str:
    whole = "".join(f"{literal(text)}, " for text in texts)
    return f"({whole.removesuffix(' ') if whole.count(', ') == 1 else whole.removesuffix(', ')})"


_OF_DOUBLE = re.compile(r"""\\.|\"""")


def _requoted(match: re.Match[str]) -> str:
    return {"\\'": "'", '"': '\\"'}.get(match[0], match[0])


# ── values ──


class UnsaidError(Exception):
    """What a mapping says and Python here cannot."""


class Given(Struct, frozen=True):
    """What stands for a path: Python that gives its value, and what that is."""

    code: str
    kind: Kind
    nullable: bool
    of_row: bool = True
    children: Callable[[str], Given] | None = None

    @property
    def decoded(self) -> str:
        """The value in the exact form that keys and items are made of."""
        return _decoded(self.code, self.kind, of_row=self.of_row)


def _decoded(code: str, kind: Kind, *, of_row: bool) -> str:
    if kind.name in ("number", "float"):
        return f"_decimal({code})" if kind.scale is None else f"_decimal({code}, {kind.scale})"
    if kind.name == "timestamp":
        how = ("_zoned" if kind.zone else "_unzoned") if of_row else "_moment"
        return f"{how}({code})"
    return f"_day({code})" if kind.name == "date" else code


class Piece(Struct, frozen=True):
    """Python of a value, which is None where one of the `guards` holds."""

    code: str
    kind: Kind
    guards: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return self.code if self.kind.name in ("text", "bits") else f"_text({self.code})"

    def guarded(self, code: str) -> str:
        if not self.guards or self.guards == (f"{code} is None",):
            return code
        return f"(None if {' or '.join(self.guards)} else {code})"


_AS_IT_IS = frozenset({"integer", "text", "bits", "boolean"})


@dataclass
class Code:
    """Expressions over values that `given` finds by their paths. `lists`: aliases of lists among them."""

    given: Callable[[str], Given]
    around: FilterContext
    lists: frozenset[str] = frozenset()
    _bound: int = field(default=0, init=False)

    def template(self, template: Template, star: str = "", up: bool | None = None) -> Piece:
        """The text of a template; `star`: what stands for its `*`; `up`: of a bound, where its last number may move."""
        last = template.refs[-1] if up is not None and template.refs else None
        pieces: list[str] = []
        guards: list[str] = []
        for part in template.parts:
            if isinstance(part, str):
                pieces.append(literal(part))
            elif part.every:
                pieces.append(star)
            else:
                piece = self.ref(part, up if part is last and not part.filters else None)
                guards += piece.guards
                pieces.append(piece.text)
        return Piece(" + ".join(pieces) or '""', Kind("text"), tuple(dict.fromkeys(guards)))

    def key(
        self, template: Template, attribute: KeyAttribute, star: str = "", up: bool | None = None
    ) -> str:
        """The value of a key attribute, None where a part of it is None."""
        if attribute.type == "text":
            piece = self.template(template, star, up)
            return piece.guarded(piece.code)
        piece = self.ref(template.refs[0])
        return piece.guarded(
            piece.code if attribute.type == "binary" else f"_number_key({piece.code})"
        )

    def attribute(self, value: Expression) -> str:
        """The value of an attribute, None where it has none. Raises: UnsaidError."""
        match value:
            case Ref():
                piece = self.ref(value)
                is_plain = piece.kind.name in _AS_IT_IS
                return piece.guarded(piece.code if is_plain else f"_attribute({piece.code})")
            case Template():
                piece = self.template(value)
                return piece.guarded(piece.code)
            case Const():
                return literal(value.value)
            case MapOf():
                return self._map(value.entries)
            case Each():
                return self._each(value)
            case Stored():
                raise UnsaidError("it is kept in S3")

    def _map(self, entries: Mapping[str, Expression]) -> str:
        inner = ", ".join(
            f"{literal(name)}: {self.attribute(value)}" for name, value in entries.items()
        )
        return f"_map({{{inner}}})"

    def _each(self, value: Each) -> str:
        rows = self.given(value.collection)
        assert rows.children is not None
        of_child = Code(rows.children, self.around)
        return f"[{of_child._map(value.attributes)} for child in {rows.code}]"

    # ── references ──

    def ref(self, ref: Ref, up: bool | None = None) -> Piece:
        alias, _, name = ref.paths[0].partition(".")
        if alias in self.lists and ref.paths[0] != alias:
            return self._of_list(ref, self.given(alias), name)
        found = [self.given(path) for path in ref.paths]
        guards = tuple(f"{value.code} is None" for value in found if value.nullable)
        piece = Piece(", ".join(value.decoded for value in found), found[0].kind, guards)
        return self._filtered(self._formatted(piece, ref.format, up), ref.filters)

    def _of_list(self, ref: Ref, rows: Given, name: str) -> Piece:
        assert rows.children is not None
        cut = next(place for place, spec in enumerate(specs_of(ref)) if spec.of_list)
        of_child = Code(rows.children, self.around)
        element = of_child.ref(Ref((name,), ref.format, ref.filters[:cut]))
        listed = Piece(f"[{element.guarded(element.code)} for child in {rows.code}]", element.kind)
        return self._filtered(listed, ref.filters[cut:])

    def _formatted(self, piece: Piece, format_spec: str | None, up: bool | None) -> Piece:
        if format_spec is None:
            return piece
        width, decimals = format_width(format_spec)
        code = f"{piece.code}, {width}, {decimals}"
        padded = f"_padded({code})" if up is None else f"_bound({code}, {up})"
        return Piece(padded, Kind("text"), piece.guards)

    def _filtered(self, piece: Piece, filters: Sequence[Filter]) -> Piece:
        for used in filters:
            spec = FILTERS[used.name]
            if spec.null:
                piece = self._in_place_of_null(piece, used)
                continue
            code = self._called(used, piece.code)
            kind = spec.after(piece.kind)
            piece = Piece(code, kind, piece.guards)
            if spec.of_list and spec.gives.name != "integer":
                # Its result may be None, so that it is bound to a name before it is looked at.
                self._bound += 1
                bound = f"v{self._bound}"
                piece = Piece(bound, kind, (*piece.guards, f"({bound} := {code}) is None"))
        return piece

    def _in_place_of_null(self, piece: Piece, used: Filter) -> Piece:
        if not piece.guards:
            return piece
        code = f"({literal(used.args[0])} if {' or '.join(piece.guards)} else {piece.text})"
        return Piece(code, Kind("text"))

    def _called(self, used: Filter, code: str) -> str:
        """A call of the function of that filter, with what it takes beside its value and the filter's own arguments."""
        function = getattr(values, f"_filter_{used.name}", None)
        if function is None:
            raise UnsaidError(f"there is no function for the filter {used.name}")
        around = {
            "separator": literal(self.around.separator),
            "table": literal(self.around.maps.get(used.args[0], {})) if used.args else "",
            "zone": literal(self.around.timezone or "UTC"),
        }
        wanted = [around[name] for name in inspect.signature(function).parameters if name in around]
        own = (
            []
            if "table" in inspect.signature(function).parameters
            else [literal(one) for one in used.args]
        )
        return f"_filter_{used.name}({', '.join([code, *own, *wanted])})"
