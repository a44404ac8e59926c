"""A mapping's templates and expressions as Python code, and Python names."""

from __future__ import annotations

import json
import keyword
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from migrator.features.exports.model import TEXT, Expressions, Piece, UnsaidError
from migrator.mapping.items.filters import FILTERS, FilterContext, unit_of
from migrator.mapping.model.facts import Kind
from migrator.mapping.model.mapping import Const, Each, Expression, Filter, MapOf, Ref, Stored, Template
from migrator.mapping.model.table import KeyAttribute
from migrator.runtime.values import replace

# ── names ──

_RESERVED = """
Any Decimal UUID dt Sequence Mapping str int float bool bytes list dict
self cls item row before after p made child cursor size
l O I
"""
RESERVED = frozenset(_RESERVED.split())
"""Names that annotations, and generated code around other names, need unchanged; and letters that look like digits."""


class Names:
    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken) | RESERVED

    def one(self, wanted: str) -> str:
        """The wanted name, or the next free one: with an underscore, then with a number."""
        name, number = wanted, 1
        while name in self._taken or keyword.iskeyword(name):
            name = f"{wanted}_" if number == 1 else f"{wanted}_{number}"
            number += 1
        self._taken.add(name)
        return name

    def all(self, wanted: Iterable[str]) -> dict[str, str]:
        return {text: self.one(identifier(text)) for text in wanted}


def identifier(text: str) -> str:
    """`1st` is n_1st, `Order ID` Order_ID. Strips the leading underscores, which Python has a use for."""
    plain = re.sub(r"\W+", "_", unicodedata.normalize("NFKC", text)).strip("_") or "value"
    return plain if plain.isidentifier() else f"n_{plain}"


def class_name(text: str) -> str:
    words = [word for word in re.split(r"_+", identifier(text)) if word]
    joined = "".join(word[0].upper() + word[1:] for word in words)
    return joined if joined.isidentifier() else f"N{joined}"


def function_name(text: str) -> str:
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", identifier(text)).lower()
    return re.sub(r"_+", "_", apart)


def shown(text: str) -> str:
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
    if kind is not None and kind.name == "list":
        # Arrays in arrays are of one kind in the source's catalogue.
        return "list[Any]"
    return TYPES.get(kind.name, "Any") if kind is not None else "Any"


def optional(annotation: str, *, nullable: bool) -> str:
    return f"{annotation} | None" if nullable and annotation != "Any" else annotation


def literal(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{literal(name)}: {literal(inner)}' for name, inner in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(literal, value))}]"
    return repr(value)


# ── values ──


class NamedValue(Struct, frozen=True):
    """Python code of a path's value. `children`: of a list of rows, by the paths of the variable `child`."""

    code: str
    kind: Kind
    nullable: bool
    children: Mapping[str, NamedValue] = {}


def guarded(piece: Piece) -> str:
    if not piece.guards or piece.guards == (f"{piece.code} is None",):
        return piece.code
    return f"(None if {' or '.join(piece.guards)} else {piece.code})"


def param(name: str) -> str:
    return f"p[{literal(name)}]"


@dataclass
class PythonCode(Expressions):
    """Expressions over values by path. `of_row`: they are a row's, not parameters."""

    values: Mapping[str, NamedValue]
    around: FilterContext
    of_row: bool = True
    star: str = "text"
    _bound: int = field(default=0, init=False)

    def key(self, template: Template, attribute: KeyAttribute, up: bool | None = None) -> str:
        if attribute.type == "text":
            return guarded(self.template(template, up))
        piece = self.ref(template.refs[0])
        code = piece.code if attribute.type == "binary" else f"_number_key({piece.code})"
        return guarded(replace(piece, code=code))

    def value(self, value: Expression) -> str:
        match value:
            case Ref():
                piece = self.ref(value)
                if piece.kind.distinct and not value.filters:  # an old table's set
                    return self.value(replace(value, filters=(Filter("set"),)))
                is_plain = piece.kind.name in ("integer", "text", "bits", "boolean")
                return guarded(
                    piece
                    if is_plain or piece.kind.distinct
                    else replace(piece, code=f"_attribute({piece.code})")
                )
            case Template():
                return guarded(self.template(value))
            case Const():
                return literal(value.value)
            case MapOf():
                inner = ", ".join(
                    f"{literal(name)}: {self.value(one)}" for name, one in value.entries.items()
                )
                return f"_map({{{inner}}})"
            case Each():
                rows = self.values[value.collection]
                of_child = PythonCode(rows.children, self.around)
                made = of_child.value(MapOf(value.attributes))
                if value.key is None:
                    return f"[{made} for child in {rows.code}]"
                key = guarded(of_child.template(value.key))
                return f"_by_key([({key}, {made}) for child in {rows.code}])"
            case Stored():
                raise UnsaidError("it is kept in S3")

    def given(self, ref: Ref) -> tuple[Piece, Sequence[Filter]]:
        alias, _, name = ref.paths[0].partition(".")
        rows = self.values.get(alias)
        if name and rows is not None and rows.children:
            element = self._decoded(rows.children[name])
            return Piece(rows.code, element.kind, element=element), ref.filters
        found = [self._decoded(self.values[path]) for path in ref.paths]
        guards = tuple(guard for piece in found for guard in piece.guards)
        return Piece(", ".join(piece.code for piece in found), found[0].kind, guards), ref.filters

    def _decoded(self, given: NamedValue) -> Piece:
        code, kind = given.code, given.kind
        moment = ("_zoned" if kind.zone else "_unzoned") if self.of_row else "_moment"
        forms = {
            **dict.fromkeys(
                ("number", "float"), "_decimal({})" if kind.scale is None else f"_decimal({{}}, {kind.scale})"
            ),
            "timestamp": f"{moment}({{}})",
            "date": "_day({})",
        }
        guards = (f"{code} is None",) if given.nullable else ()
        return Piece(forms.get(kind.name, "{}").format(code), kind, guards)

    def literal(self, value: object) -> str:
        return literal(value)

    def text(self, piece: Piece) -> str:
        return piece.code if piece.kind.name in ("text", "bits") else f"_text({piece.code})"

    def joined(self, texts: Sequence[str]) -> str:
        return " + ".join(texts)

    def call(self, name: str, *arguments: str) -> str:
        return f"_{name}({', '.join(arguments)})"

    def param(self, name: str) -> str:
        return param(name)

    def needed(self, name: str) -> str:
        return self.call("set", literal(name), param(name))

    def unit(self, used: Filter) -> str:
        return literal(unit_of(used))

    def each(self, values: Piece, element: Piece) -> Piece:
        return Piece(f"[{guarded(element)} for child in {values.code}]", element.kind)

    def called(self, used: Filter, piece: Piece) -> Piece:
        spec = FILTERS[used.name]
        if spec.null:
            code = f"({literal(used.args[0])} if {' or '.join(piece.guards)} else {self.text(piece)})"
            return Piece(code, TEXT) if piece.guards else piece
        arguments = [piece.code, *map(literal, used.args)]
        if spec.of_map:
            arguments[1:] = [literal(self.around.maps[used.args[0]])]
        if spec.by_separator:
            arguments.append(literal(self.around.separator))
        if spec.by_timezone:
            arguments.insert(1, literal(self.around.timezone or "UTC"))
        code, kind = self.call(f"filter_{used.name}", *arguments), spec.after(piece.kind)
        if not spec.of_list or spec.gives.name == "integer":
            return Piece(code, kind, piece.guards)
        # Its result may be None, so it is bound to a name before the check.
        self._bound += 1
        return Piece(f"v{self._bound}", kind, (*piece.guards, f"(v{self._bound} := {code}) is None"))
