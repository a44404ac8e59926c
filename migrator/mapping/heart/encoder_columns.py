"""Columns and templates as lines of a generated function: from a value as it was read to its text, its JSON, its bytes.

A column is read in one of two forms: as the driver gives it, or raw, which is the text that the server itself writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring
from typing import Any

from migrator.mapping.heart.encoder_values import as_json
from migrator.mapping.heart.filters import FilterContext
from migrator.mapping.heart.rows import Places, compile_value
from migrator.mapping.heart.templates import format_width
from migrator.mapping.heart.values import Decoder
from migrator.mapping.heart.wire import text_bytes
from migrator.model.facts import Kind, KindName
from migrator.model.mapping import Const, Expression, Mapping, Ref, Template, paths_in

RAW_KINDS: frozenset[KindName] = frozenset({"integer", "number", "date", "time", "timestamp", "uuid"})
"""Kinds that a raw text may be given of: numbers as digits, moments in ISO form (with a zone: in UTC, with +00 or
nothing behind them), UUIDs as items have them; or any other text, for which there is no code."""


# ── Text of code ──


def literal(text: str) -> str:
    """`text` as it stands inside of f'…'."""
    plain = text.encode("unicode_escape").decode("ascii").replace("'", "\\'")
    return plain.replace("{", "{{").replace("}", "}}")


def name_of(text: str) -> str:
    """A name as JSON, with a comma before it and a colon behind it, as it stands inside of f'…'."""
    return literal("," + json.dumps(text, ensure_ascii=False) + ":")


def comment(text: str) -> str:
    """A name as it can stand in a comment."""
    return json.dumps(text)


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an item as code: what stands inside of f'…', and its bytes as a number and names of variables."""

    json: str
    known_bytes: int = 0
    counted: tuple[str, ...] = ()


def size_of(pieces: Sequence[Piece]) -> str:
    """The bytes of the pieces as an expression."""
    return " + ".join(
        [str(sum(p.known_bytes for p in pieces)), *(name for p in pieces for name in p.counted)]
    )


# ── A column's code ──


@dataclass
class ColumnCode:
    """The variables of one value, by its place: `d` as read, `t` its text, `n` its bytes, and of a text `q` as JSON.

    `optional`: it may be NULL. `raw`: it is read raw. `decoded`: some function needs it as items_for() has it (`c`).
    `scope`: what its decoder's name begins with; each tuple has its own. `named`: the attributes that it is, each with the
    variables of its JSON and its bytes.
    """

    path: str
    kind: Kind
    place: int
    decode: Decoder
    optional: bool
    raw: bool
    scope: str = ""
    decoded: bool = False
    named: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def is_key_text(self) -> bool:
        """Whether there is code for its text in a key."""
        return self.kind.name in ("integer", "text", "uuid", *_MOMENTS)

    @property
    def text_in_json(self) -> str:
        return f"{{q{self.place}[1:-1]}}" if self.kind.name == "text" else f"{{t{self.place}}}"

    @property
    def text_bytes(self) -> str:
        """The bytes of its text as an expression."""
        return f"n{self.place}" if self.kind.name == "text" else f"len(t{self.place})"

    def attribute(self, name: str) -> Piece:
        """The attribute of this name, left out where it is NULL."""
        if not self.optional:
            return Piece(name_of(name) + self._wired(), text_bytes(name), (f"n{self.place}",))
        count = f"{self.place}_{len(self.named)}"
        variables = self.named.setdefault(name, (f"a{count}", f"b{count}"))
        return Piece(f"{{{variables[0]}}}", 0, (variables[1],))

    def lines(self) -> Iterator[str]:
        """The lines that set the variables."""
        d = f"d{self.place}"
        yield f"# {comment(self.path)}"
        if self.decoded:
            yield f"c{self.place} = {self.scope}decode{self.place}({d})"
        if not self.optional:
            yield f"if {d} is None:"
            yield "    no_code()"
            yield from self._value()
            return
        yield f"if {d} is not None:"
        yield from (f"    {line}" for line in self._value())
        for name, (text, size) in self.named.items():
            yield f"    {text} = f'{name_of(name)}{self._wired()}'"
            yield f"    {size} = {text_bytes(name)} + n{self.place}"
        if self.named:
            yield "else:"
            for text, size in self.named.values():
                yield f"    {text} = ''"
                yield f"    {size} = 0"

    # ── by kind ──

    def _wired(self) -> str:
        text, name = f"t{self.place}", self.kind.name
        if name == "text":
            return f'{{{{"S":{{q{self.place}}}}}}}'
        if name in ("uuid", "bits", *_MOMENTS):
            return f'{{{{"S":"{{{text}}}"}}}}'
        if name in ("integer", "number", "float"):
            return f'{{{{"N":"{{{text}}}"}}}}'
        return f"{{{text}}}"

    def _value(self) -> Iterator[str]:
        lines = _LINES.get(self.kind.name, _other)(self)
        return (
            line.replace("decode@", f"{self.scope}decode@").replace("@", str(self.place)) for line in lines
        )


def _integer(column: ColumnCode) -> list[str]:
    if column.raw:
        lines = ["t@ = d@ if d@.isdecimal() and d@[0] != '0' else str(int(d@))"]
    else:
        lines = ["t@ = str(d@ if type(d@) is int else int(decode@(d@)))"]
    return [*lines, "n@ = len(t@.rstrip('0')) + 3 >> 1 if t@[0] != '-' and len(t@) < 20 else whole_bytes(t@)"]


def _text(_: ColumnCode) -> list[str]:
    return ["t@ = d@", "q@ = quoted(t@)", "n@ = len(t@) if t@.isascii() else len(t@.encode())"]


def _number_lines(column: ColumnCode) -> list[str]:
    scale = column.kind.scale if column.kind.name == "number" else None
    if column.raw:
        return [f"t@, n@ = raw_number(d@, {scale})"]
    value = "decode@(d@)" if column.kind.single else "d@"
    return [f"t@, n@ = number({value}, {scale}, decode@)"]


def _uuid(column: ColumnCode) -> list[str]:
    checked = "t@ = d@ if len(d@) == 36 else no_code()"
    return [checked if column.raw else "t@ = decode@(d@)", "n@ = 36"]


def _bits(_: ColumnCode) -> list[str]:
    return ["t@ = decode@(d@)", "n@ = len(t@)"]


def _boolean(_: ColumnCode) -> list[str]:
    value = "(d@ if type(d@) is bool else decode@(d@))"
    return [f"t@ = '{{\"BOOL\":true}}' if {value} else '{{\"BOOL\":false}}'", "n@ = 1"]


def _binary(_: ColumnCode) -> list[str]:
    return ["v@ = decode@(d@)", "t@ = '{\"B\":\"' + base64(v@) + '\"}'", "n@ = len(v@)"]


def _moment(column: ColumnCode) -> list[str]:
    name, zone = column.kind.name, column.kind.zone
    if column.raw and zone:
        return ["t@ = zoned(d@) or no_code()", "n@ = len(t@)"]
    if column.raw:
        return [f"t@ = {name}(d@) or no_code()", "n@ = len(t@)"]
    return [f"t@ = (type(d@) is str and {name}(d@)) or text(decode@(d@))", "n@ = len(t@)"]


def _other(_: ColumnCode) -> list[str]:
    return ["t@, n@ = as_json(attribute(decode@(d@)))"]


_MOMENTS: tuple[KindName, ...] = ("date", "time", "timestamp")
_LINES: dict[KindName, Callable[[ColumnCode], list[str]]] = {
    **dict.fromkeys(_MOMENTS, _moment),
    "integer": _integer,
    "text": _text,
    "number": _number_lines,
    "float": _number_lines,
    "uuid": _uuid,
    "bits": _bits,
    "boolean": _boolean,
    "binary": _binary,
}


# ── Templates: text of which each part is a constant or a column ──


@dataclass(frozen=True)
class Text:
    """A template's parts: constants, and columns with the width that they are padded to (0: not at all)."""

    parts: tuple[str | tuple[ColumnCode, int], ...]

    @property
    def columns(self) -> tuple[tuple[ColumnCode, int], ...]:
        return tuple(part for part in self.parts if not isinstance(part, str))

    @property
    def nulls(self) -> list[str]:
        """Variables of which none may be NULL."""
        return [f"d{column.place}" for column, _ in self.columns if column.optional]

    @property
    def plain(self) -> str:
        """Itself, as it stands inside of f'…'."""
        return "".join(literal(part) if isinstance(part, str) else _shown(*part) for part in self.parts)

    @property
    def in_json(self) -> str:
        """The same as JSON."""
        inner = (
            literal(encode_basestring(part)[1:-1]) if isinstance(part, str) else _shown(*part, in_json=True)
            for part in self.parts
        )
        return f'"{"".join(inner)}"'

    @property
    def size(self) -> str:
        """Its bytes, as an expression."""
        known = sum(text_bytes(part) if isinstance(part, str) else part[1] for part in self.parts)
        return " + ".join([str(known), *(column.text_bytes for column, width in self.columns if not width)])

    @property
    def fits(self) -> bool:
        """Whether it is always there, and never too long for a key."""
        closed = all(column.kind.name != "text" for column, _ in self.columns)
        return (
            closed
            and 0 < len(self.parts) <= 9
            and sum(len(p) for p in self.parts if isinstance(p, str)) < 500
        )

    def checks(self) -> Iterable[str]:
        """Lines that raise for a number that its width does not hold."""
        for column, width in self.columns:
            if width:
                t = f"t{column.place}"
                yield f"if len({t}) > {width} or {t}[0] == '-':"
                yield "    no_code()"


def _shown(column: ColumnCode, width: int, *, in_json: bool = False) -> str:
    if width:
        return f"{{t{column.place}.zfill({width})}}"
    return column.text_in_json if in_json else f"{{t{column.place}}}"


# ── The values of one tuple: a row's, or a child's ──


@dataclass
class TupleText:
    """Code for what is made of one tuple. `names`: what the text refers to beside its own variables."""

    mapping: Mapping
    names: dict[str, Any]
    places: Places
    columns: dict[str, ColumnCode]
    body: list[str] = field(default_factory=list)
    needs_decoded: bool = False
    made: int = 0
    decoded_lists: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.around = FilterContext(self.mapping.table.separator, self.mapping.maps, self.mapping.timezone)

    def line(self, level: int, text: str) -> None:
        self.body.append("    " * level + text)

    def named(self, beginning: str, value: Any) -> str:
        name = f"{beginning}_{len(self.names)}"
        self.names[name] = value
        return name

    def called(self, beginning: str, function: Any, paths: Iterable[str]) -> str:
        """A call of a function of the decoded tuple, which reads these paths."""
        self.needs_decoded = True
        for path in paths:
            self.decode(path)
        return f"{self.named(beginning, function)}(decoded)"

    def decode(self, path: str) -> None:
        """Has the value at the path decoded: a column, or all of a list."""
        if path in self.columns:
            self.columns[path].decoded = True
        else:
            self.decoded_lists.add(path.partition(".")[0])

    def text(self, template: Template) -> Text | None:
        """The template as code; None where a part of it needs more."""
        parts: list[str | tuple[ColumnCode, int]] = []
        for part in template.parts:
            if isinstance(part, str):
                parts.append(part)
                continue
            column = self.columns.get(part.paths[0])
            if len(part.paths) != 1 or part.filters or column is None or not column.is_key_text:
                return None
            width, decimals = format_width(part.format) if part.format else (0, 0)
            if part.format and (column.kind.name != "integer" or decimals):
                return None
            parts.append((column, width))
        return Text(tuple(parts))

    def attribute(self, level: int, name: str, expression: Expression) -> Piece | None:
        """An attribute; None where it never has a value."""
        if isinstance(expression, Const):
            return None if expression.value is None else constant(name, expression.value)
        if isinstance(expression, Ref) and expression.paths[0] in self.columns and _is_plain(expression):
            return self.columns[expression.paths[0]].attribute(name)
        text = self.text(expression) if isinstance(expression, Template) else None
        if text is not None:
            return self._text_attribute(level, name, text)
        value = self.called(
            "value", compile_value(expression, self.places, self.around), paths_in([expression])
        )
        return self.any(level, f"named({label(name)}, {text_bytes(name)}, {value})")

    def _text_attribute(self, level: int, name: str, text: Text) -> Piece:
        made, size = self.variables()
        test = " or ".join(f"{null} is None" for null in text.nulls)
        if test:
            self.line(level, f"{made}, {size} = '', 0")
            self.line(level, f"if not ({test}):")
            level += 1
        for check in text.checks():
            self.line(level, check)
        self.line(level, f"{made} = f'{name_of(name)}{{{{\"S\":{text.in_json}}}}}'")
        self.line(level, f"{size} = {text_bytes(name)} + {text.size}")
        return Piece(f"{{{made}}}", 0, (size,))

    def any(self, level: int, expression: str) -> Piece:
        made, size = self.variables()
        self.line(level, f"{made}, {size} = {expression}")
        return Piece(f"{{{made}}}", 0, (size,))

    def variables(self) -> tuple[str, str]:
        self.made += 1
        return f"x{self.made}", f"y{self.made}"


def _is_plain(ref: Ref) -> bool:
    """Whether the reference is a column's value as it is."""
    return len(ref.paths) == 1 and not ref.filters and ref.format is None


def label(name: str) -> str:
    return repr("," + json.dumps(name, ensure_ascii=False) + ":")


def constant(name: str, value: Any) -> Piece:
    text, size = as_json(value)
    return Piece(name_of(name) + literal(text), text_bytes(name) + size)
