"""Columns and templates as lines of a generated function: from a value as it was read to its text, its JSON, its bytes.

A column is read in one of two forms: as the driver gives it, or raw, which is the text that the server itself writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from json.encoder import encode_basestring
from typing import Any

from migrator.mapping.items.encoder_values import Piece, as_json, comment, literal, more_of, piece
from migrator.mapping.items.filters import FilterContext
from migrator.mapping.items.rows import Places, compile_value
from migrator.mapping.items.templates import format_width
from migrator.mapping.items.values import Decoder
from migrator.mapping.items.wire import text_bytes
from migrator.mapping.model.facts import Kind, KindName
from migrator.mapping.model.mapping import Const, Expression, Mapping, Ref, Template, paths_in
from migrator.mapping.model.table import NUMBER_DIGITS

RAW_KINDS: frozenset[KindName] = frozenset({"integer", "number", "date", "time", "timestamp", "uuid"})
"""Kinds that a raw text may be given of: numbers as digits, moments in ISO form (with a zone: in UTC, with +00 or
nothing behind them), UUIDs as items have them; or any other text, for which there is no code."""


# ── A column's code ──


@dataclass
class ColumnCode:
    """The variables of one value, by its place: `d` as read, `t` its text, of a text `q` as JSON, and `n`, by how much its
    bytes are more than those of `t`.

    `optional`: it may be NULL. `raw`: it is read raw. `sized`: whether bytes are wanted at all. `decoded`: some function
    needs it as items_for() has it (`c`). `scope`: what its decoder's name begins with; each tuple has its own. `named`: the
    attributes that it is, each with the variable of its text.
    """

    path: str
    kind: Kind
    place: int
    decode: Decoder
    optional: bool
    raw: bool
    sized: bool
    scope: str = ""
    decoded: bool = False
    measured: bool = False
    named: dict[str, tuple[str, Piece]] = field(default_factory=dict)

    @property
    def counts(self) -> bool:
        """Whether `n` is set."""
        return self.sized and self.measured

    @property
    def is_key_text(self) -> bool:
        """Whether there is code for its text in a key."""
        return self.kind.name in ("integer", "text", "uuid", *_MOMENTS)

    @property
    def text_in_json(self) -> str:
        return f"{{q{self.place}[1:-1]}}" if self.kind.name == "text" else f"{{t{self.place}}}"

    @property
    def escaped(self) -> tuple[str, ...]:
        """By how many characters its text is longer in JSON, as an expression; none where it never is."""
        return (f"len(q{self.place}) - len(t{self.place}) - 2",) if self.kind.name == "text" else ()

    def attribute(self, name: str) -> Piece:
        """The attribute of this name, left out where it is NULL."""
        counted: tuple[str, ...] = ()
        if self.kind.name not in ("text", "uuid", "bits", *_MOMENTS):
            counted, self.measured = (f"n{self.place}",), True
        made = piece(name, self._wired(), counted, self.escaped)
        if self.kind.name == "text":
            made = replace(made, more=made.more - len('""'))
        if not self.optional:
            return made
        number = f"{self.place}_{len(self.named)}"
        variable, made = self.named.setdefault(name, (f"a{number}", made))
        return made.left_out_where_empty(variable, f"b{variable[1:]}")

    def lines(self) -> Iterator[str]:
        """The lines that set the variables."""
        d = f"d{self.place}"
        yield f"# {comment(self.path)}"
        if self.decoded:
            yield f"c{self.place} = {self.scope}decode{self.place}({d})"
        if not self.optional:
            if self.kind.name not in _RAISE_FOR_NULL:
                yield f"if {d} is None:"
                yield "    no_code()"
            yield from self._value()
            return
        yield f"if {d} is not None:"
        yield from (f"    {line}" for line in self._value())
        for text, made in self.named.values():
            yield f"    {text} = f'{made.json}'"
            if self.sized:
                yield f"    b{text[1:]} = {more_of([made])}"
        if self.named:
            yield "else:"
            for text in (text for text, _ in self.named.values()):
                yield f"    {text} = ''"
                if self.sized:
                    yield f"    b{text[1:]} = 0"

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
        if not self.counts:
            # A line that is all of a branch has to leave one.
            lines = [
                line.partition("n@ = ")[0] + "pass" if line.lstrip().startswith("n@ = ") else line
                for line in lines
            ]
            lines = [line for line in lines if line != "pass"]
        return (
            line.replace("decode@", f"{self.scope}decode@").replace("@", str(self.place)) for line in lines
        )


def _integer(column: ColumnCode) -> list[str]:
    if column.raw:
        lines = ["t@ = d@ if d@.isdecimal() and d@[0] != '0' else str(int(d@))"]
    else:
        lines = ["t@ = f'{d@}' if type(d@) is int else str(int(decode@(d@)))"]
    if not column.counts:
        return [*lines, "if len(t@) > 19:", "    whole_bytes(t@)"]
    return [
        *lines,
        "l@ = len(t@)",
        "if l@ > 19 or t@[0] == '-':",
        "    n@ = whole_bytes(t@) - l@",
        "elif t@[-1] != '0':",
        "    n@ = (l@ + 3 >> 1) - l@",
        "else:",
        "    n@ = (len(t@.rstrip('0')) + 3 >> 1) - l@",
    ]


def _text(_: ColumnCode) -> list[str]:
    return ["t@ = d@", "q@ = quoted(t@)"]


def _number_lines(column: ColumnCode) -> list[str]:
    """A positive number that is written as digits is done here; a function takes every other one."""
    scale = column.kind.scale if column.kind.name == "number" else None
    if column.raw:
        digits, other = "d@", f"raw_number(d@, {scale})"
    else:
        digits = "str(v@) if type(v@) in plain_numbers else ''"
        other = f"number(v@, {scale}, decode@)"
    value = [] if column.raw else [f"v@ = {'decode@(d@)' if column.kind.single else 'd@'}"]
    exact = "" if scale is None else f" and '.' not in t@[:-{scale + 1}]"
    return [
        *value,
        f"t@ = {digits}",
        "if t@[-1:] == '0' and '.' in t@:",
        "    t@ = t@.rstrip('0').rstrip('.')",
        "g@ = t@.replace('.', '', 1)",
        f"if t@ >= '1' and g@.isdecimal() and len(g@) < {NUMBER_DIGITS}{exact}:",
        "    n@ = ((len(g@) if g@[-1] != '0' else len(g@.rstrip('0'))) + 3 >> 1) - len(t@)",
        "else:",
        f"    t@, n@ = {other}",
    ]


def _uuid(column: ColumnCode) -> list[str]:
    return ["t@ = d@ if len(d@) == 36 else no_code()" if column.raw else "t@ = decode@(d@)"]


def _bits(_: ColumnCode) -> list[str]:
    return ["t@ = decode@(d@)"]


def _boolean(_: ColumnCode) -> list[str]:
    value = "(d@ if type(d@) is bool else decode@(d@))"
    return [f"t@ = '{{\"BOOL\":true}}' if {value} else '{{\"BOOL\":false}}'", "n@ = 1 - len(t@)"]


def _binary(_: ColumnCode) -> list[str]:
    return ["v@ = decode@(d@)", "t@ = '{\"B\":\"' + base64(v@) + '\"}'", "n@ = len(v@) - len(t@)"]


def _moment(column: ColumnCode) -> list[str]:
    """A timestamp with microseconds is done here; functions take every other form."""
    name, zone = column.kind.name, column.kind.zone
    if not column.raw:
        lines = [f"t@ = (type(d@) is str and {name}(d@)) or text(decode@(d@))"]
    else:
        lines = [f"t@ = {'zoned' if zone else name}(d@) or no_code()"]
    if name != "timestamp" or (zone and not column.raw):
        return lines
    of_str = "" if column.raw else "type(d@) is str and "
    form = "len(d@) == 29 and d@[26:] == '+00'" if zone else "len(d@) == 26"
    is_moment = "moment(d@)" if zone else "moment(d@).tzinfo is None"
    return [
        f"if {of_str}d@[4:20:3] == '-- ::.' and {form} and d@[11:13] != '24' and {is_moment}:",
        "    t@ = d@[:26].replace(' ', 'T') + 'Z'" if zone else "    t@ = d@.replace(' ', 'T')",
        "else:",
        *(f"    {line}" for line in lines),
    ]


def _other(_: ColumnCode) -> list[str]:
    return ["t@, n@ = as_json(attribute(decode@(d@)))"]


_MOMENTS: tuple[KindName, ...] = ("date", "time", "timestamp")
_RAISE_FOR_NULL = frozenset[KindName]({"integer", "text"})
"""Kinds whose lines raise for None by what they call."""
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
    def is_made_of_plain(self) -> bool:
        """Whether JSON escapes nothing in it."""
        constants = [part for part in self.parts if isinstance(part, str)]
        return all(column.kind.name != "text" for column, _ in self.columns) and all(
            encode_basestring(part) == f'"{part}"' for part in constants
        )

    @property
    def in_json(self) -> str:
        """The same as JSON."""
        inner = (
            literal(encode_basestring(part)[1:-1]) if isinstance(part, str) else _shown(*part, in_json=True)
            for part in self.parts
        )
        return f'"{"".join(inner)}"'

    def attribute(self, name: str) -> Piece:
        """The attribute of this name, where nothing of it is NULL."""
        escaped = [one for column, _ in self.columns for one in column.escaped]
        # Constants are in the text as JSON, too.
        more = sum(text_bytes(part) for part in self.parts if isinstance(part, str))
        made = piece(name, f'{{{{"S":{self.in_json}}}}}', (), tuple(escaped))
        return replace(made, more=made.more + more)

    def is_within(self, limit: int) -> str:
        """Whether it is there and has no more bytes, as an expression; a character has four at most."""
        known = sum(text_bytes(part) if isinstance(part, str) else part[1] for part in self.parts)
        texts = [f"t{column.place}" for column, width in self.columns if not width]
        characters, bytes_ = (
            " + ".join([str(known), *(f"{function}({text})" for text in texts)])
            for function in ("len", "text_bytes")
        )
        return f"0 < {characters} <= {limit // 4} or 0 < {bytes_} <= {limit}"

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
    sized: bool
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
        return self.any(level, name, f"named({label(name)}, {text_bytes(name)}, {value})")

    def _text_attribute(self, level: int, name: str, text: Text) -> Piece:
        made = text.attribute(name)
        test = " or ".join(f"{null} is None" for null in text.nulls)
        if not test:
            for check in text.checks():
                self.line(level, check)
            return made
        variable, more = self.variables()
        self.line(level, f"{variable}, {more} = '', 0")
        self.line(level, f"if not ({test}):")
        for check in text.checks():
            self.line(level + 1, check)
        self.assign(level + 1, variable, more, [made])
        return made.left_out_where_empty(variable, more)

    def assign(self, level: int, variable: str, more: str, pieces: Sequence[Piece]) -> None:
        """Sets the variables to the text of the pieces and their `more`."""
        self.line(level, f"{variable} = f'{''.join(one.json for one in pieces)}'")
        if self.sized:
            self.line(level, f"{more} = {more_of(pieces)}")

    def any(self, level: int, name: str, expression: str) -> Piece:
        """The attribute that an expression gives, as its text and its `more`."""
        made, more = self.variables()
        self.line(level, f"{made}, {more} = {expression}")
        return Piece(name, f"{{{made}}}", 0, (more,), is_sure=False)

    def variables(self) -> tuple[str, str]:
        self.made += 1
        return f"x{self.made}", f"y{self.made}"


def _is_plain(ref: Ref) -> bool:
    """Whether the reference is a column's value as it is."""
    return len(ref.paths) == 1 and not ref.filters and ref.format is None


def label(name: str) -> str:
    return repr("," + json.dumps(name, ensure_ascii=False) + ":")


def constant(name: str, value: Any) -> Piece:
    text, more = as_json(value)
    made = piece(name, literal(text))
    return replace(made, more=made.more + text_bytes(text) + more)
