"""A whole generated module: rows, items and patterns by a template, and copies of the functions they use."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial
from importlib import resources
from typing import Any, TypeAlias

from msgspec import Struct

from migrator.cli.template import text_template
from migrator.features.exports.definitions import comment, construct_name
from migrator.features.exports.model import (
    ItemAttribute,
    ItemType,
    Model,
    PatternModel,
    RowModel,
    RowValue,
    UnsaidError,
)
from migrator.features.exports.python import table, values
from migrator.features.exports.python.expressions import (
    TYPES,
    NamedValue,
    Names,
    PythonCode,
    class_name,
    function_name,
    guarded,
    identifier,
    literal,
    optional,
    param,
    shown,
    type_of,
)
from migrator.mapping.items.filters import FILTERS, unit_of
from migrator.mapping.items.program import Key
from migrator.mapping.items.values import PYTHON_FORMS
from migrator.mapping.model.facts import Kind
from migrator.mapping.model.mapping import Condition, Each, Filter, Param, Ref, paths_in, uses_in
from migrator.mapping.patterns.requests import cut_params
from migrator.runtime.errors import SettingsError
from migrator.runtime.values import replace


class Field(Struct, frozen=True):
    name: str
    annotation: str
    remark: str = ""
    read: str = ""


class Record(Struct, frozen=True):
    name: str
    doc: str
    fields: Sequence[Field]
    function: str = ""


# ── items ──


def item_records(model: Model, names: Names) -> Iterator[Record]:
    for type_, items in model.types.items():
        doc = f"What an item of type {shown(type_)} says."
        # Several entities may write items of one type.
        found: dict[str, list[ItemAttribute]] = {}
        for attribute in (attribute for item in items for attribute in item.attributes):
            found.setdefault(attribute.name, []).append(attribute)
        fields = _fields(_merged(name, several, len(items)) for name, several in found.items())
        yield Record(names.one(class_name(type_)), doc, fields, names.one(f"{function_name(type_)}_of"))


_Stored: TypeAlias = tuple[str, str, str]
"""An attribute's name, its annotation, and the code that reads it from an item."""


def _merged(name: str, several: Sequence[ItemAttribute], items: int) -> _Stored:
    if several[0].stored:
        return name, "Any", f"item.get({literal(name)})"
    kinds = {one.kind for one in several}
    required = len(several) == items and all(one.required for one in several)
    return _restored(name, kinds.pop() if len(kinds) == 1 else None, nullable=not required)


def _restored(name: str, kind: Kind | None, *, nullable: bool) -> _Stored:
    annotation = optional(type_of(kind), nullable=nullable)
    return name, annotation, restoring(kind, f"item.get({literal(name)})")


def _fields(stored: Iterable[_Stored]) -> list[Field]:
    names = Names()
    found = [(name, names.one(identifier(name)), *rest) for name, *rest in stored]
    return [
        Field(field, annotation, shown(name) if field != name else "", read)
        for name, field, annotation, read in found
    ]


def readers() -> str:
    """The module's functions that restore values. Values that no row makes stay unchanged, as `reverse`
    refuses them."""
    return "\n".join(
        f"def _read_{name}(value: Any) -> Any:\n"
        f"    return _restored(({', '.join(map(_code, types))},), {_code(form)}, value)"
        for name, (types, form) in PYTHON_FORMS.items()
    )


def _code(named: Any) -> str:
    return f"dt.{named.__qualname__}" if hasattr(named, "__self__") else str(named.__name__)


def restoring(kind: Kind | None, value: str) -> str:
    if kind is not None and kind.name == "list" and kind.element is not None:
        return f"_read_list({_reader(kind.element)}, {value})"
    if kind is not None and kind.name == "map" and (kind.fields or kind.element):
        fields = ", ".join(f"{literal(name)}: {_reader(of)}" for name, of in kind.fields)
        return f"_read_map({{{fields}}}, {_reader(kind.element)}, {value})"
    return f"_read_{kind.name if kind is not None and kind.name in (*PYTHON_FORMS, 'integer') else 'plain'}({value})"


def _reader(kind: Kind | None) -> str:
    called = restoring(kind, "value")
    return f"(lambda value: {called})" if "," in called else called.removesuffix("(value)")


# ── rows ──

_ORIGINS = {
    "parent": "of a joined row",
    "children": "of other rows that belong to this one",
    "sql": "made by SQL until now",
    "transform": "made by the mapping's function until now",
}


class RowCode:
    """One row, with the names of its classes and functions in the module.

    `fields`: by path.
    `children`: by a list's path, its class and fields.
    `builders`: of keys, by item type and index ('': the table).
    `methods`: by purpose.
    """

    def __init__(self, model: Model, row: RowModel, module: Names) -> None:
        called = class_name(row.name)
        self.model, self.row = model, row
        self.name, self.function = module.one(f"{called}Row"), function_name(row.name)
        self.fields = Names().all(value.path for value in row.values)
        self.children = {
            value.path: (
                module.one(f"{called}{class_name(value.path)}"),
                Names().all(child.path for child in value.children),
            )
            for value in row.values
            if value.children
        }
        self.builders: dict[tuple[str, str], str] = {}
        self.methods: dict[str, str] = {}

    def name_builders(self, module: Names) -> None:
        for item in self.row.items:
            called = function_name(item.called)
            self.builders[item.called, ""] = module.one(f"{called}_key")
            for entry in item.entries:
                self.builders[item.called, entry.index] = module.one(f"{called}_{function_name(entry.index)}")

    def name_methods(self, methods: Names) -> None:
        for does in ("put", "change", "delete", *(("read",) if isinstance(self.read, ReadBack) else ())):
            self.methods[does] = methods.one(f"{does}_{self.function}")

    @cached_property
    def of_arguments(self) -> PythonCode:
        return self._code("")

    @cached_property
    def of_row(self) -> PythonCode:
        return self._code("row.")

    def _code(self, prefix: str) -> PythonCode:
        values = {value.path: self._given(value, prefix) for value in self.row.values}
        return PythonCode(values, self.model.around)

    def _given(self, value: RowValue, prefix: str) -> NamedValue:
        _, fields = self.children.get(value.path, ("", {}))
        children = {
            child.path: NamedValue(f"child.{fields[child.path]}", child.kind, child.nullable)
            for child in value.children
        }
        return NamedValue(f"{prefix}{self.fields[value.path]}", value.kind, value.nullable, children)

    def records(self) -> Iterator[Record]:
        for path, (called, fields) in self.children.items():
            doc = f"One of {shown(path)} of a row of {shown(self.row.name)}."
            of_child = self.row.value(path).children
            yield Record(called, doc, [Field(fields[child.path], _annotation(child)) for child in of_child])
        types = ", ".join(dict.fromkeys(item.name for item in self.row.items))
        doc = f"What a row of {shown(self.row.name)} has and its items ({shown(types)}) are made of."
        yield Record(self.name, doc, [self._field(value) for value in self.row.values])

    def _field(self, value: RowValue) -> Field:
        name = self.fields[value.path]
        other = shown(value.path) if name != value.path else ""
        remark = ", ".join(filter(None, (other, _ORIGINS.get(value.origin, ""))))
        called, _ = self.children.get(value.path, ("", {}))
        return Field(name, f"Sequence[{called}]" if called else _annotation(value), remark)

    def takes(self, parts: Sequence[Key], when: Sequence[Condition] = ()) -> list[Field]:
        return [self._field(self.row.value(path)) for path in self.paths(parts, when)]

    def paths(self, parts: Sequence[Key], when: Sequence[Condition] = ()) -> list[str]:
        named = [*paths_in([part.template for part in parts]), *(condition.path for condition in when)]
        heads = [(path, path.partition(".")[0]) for path in named]
        return list(dict.fromkeys(head if head in self.children else path for path, head in heads))

    @cached_property
    def unwritten(self) -> str:
        """Why no items are made from it; '' if they are."""
        try:
            for item in self.row.items:
                self.attributes(item)
        except UnsaidError as error:
            return str(error)
        return ""

    def attributes(self, item: ItemType) -> dict[str, str]:
        found, code, expiry = {}, self.of_row, item.expiry
        for one in item.attributes:
            try:
                found[one.name] = code.value(one.expression)
            except UnsaidError as error:
                raise UnsaidError(f"{shown(one.name)}: {error}") from None
        if expiry is not None and self.model.table.ttl is not None:
            seconds = code.ref(Ref((expiry.path,)))
            arguments = [seconds.code, str(expiry.days), literal(self.model.around.timezone or "UTC")]
            arguments += [str(expiry.per_s)] if expiry.per_s > 1 else []
            arguments += ["zero_is_never=True"] if expiry.zero == "never" else []
            found[self.model.table.ttl] = guarded(replace(seconds, code=code.call("expires", *arguments)))
        return found

    @cached_property
    def read(self) -> ReadBack | str:
        """How to restore the row from its items; a reason if they lack some of its values."""
        reasons = []
        for first in self.row.items:
            found = _read_back(self, first)
            missing = [value.path for value in self.row.values if value.path not in found.values]
            if not missing:
                return found
            reasons.append(
                f"by the key of {shown(first.name)} nothing gives {', '.join(map(shown, missing))}"
            )
        return "; ".join(reasons)


def _annotation(value: RowValue) -> str:
    return optional(type_of(value.kind), nullable=value.nullable)


# ── a row read back ──


class ReadBack(Struct, frozen=True):
    """How a row is restored. Arguments give the first item's key, values of earlier items the others'.

    `steps`: the items to read, each with the sources of its key's values by path.
    `values`: sources by path.
    """

    steps: Sequence[tuple[ItemType, Mapping[str, str]]]
    values: Mapping[str, str]


def _read_back(code: RowCode, first: ItemType) -> ReadBack:
    # A list is not an argument that a service would have.
    found = {path: code.fields[path] for path in code.paths(first.key) if path not in code.children}
    steps: list[tuple[ItemType, Mapping[str, str]]] = []
    for item in [first, *(other for other in code.row.items if other is not first)]:
        paths = code.paths(item.key)
        held = {} if item.when else dict(_all_held(code, item, f"_read{len(steps)}"))
        if not (set(paths) <= set(found) and (not steps or set(held) - set(found))):
            continue
        steps.append((item, {path: found[path] for path in paths}))
        found = {**held, **found} if len(steps) > 1 else {**found, **held}
    return ReadBack(steps, found)


def _all_held(code: RowCode, item: ItemType, read: str) -> Iterator[tuple[str, str]]:
    """Row values in an item, by path, with the code that restores them. `read`: the item's variable."""
    for attribute in item.attributes:
        yield from _held(code, attribute, f"{read}.get({literal(attribute.name)})")
    expiry, ttl = item.expiry, code.model.table.ttl
    if expiry is not None and ttl is not None and not _used(code.row, expiry.path):
        kind = code.row.value(expiry.path).kind
        if kind.name == "timestamp":
            zone = "UTC" if kind.zone else code.model.around.timezone or "UTC"
            got = f"{read}.get({literal(ttl)}), {expiry.days}, {literal(zone)}, zoned={kind.zone}"
            yield expiry.path, f"_read_expiry({got})"


def _held(code: RowCode, attribute: ItemAttribute, got: str) -> Iterator[tuple[str, str]]:
    value = attribute.expression
    if isinstance(value, Ref) and (value.column or _whole_enough(code.row, value)):
        yield value.paths[0], restoring(code.row.value(value.paths[0]).kind, got)
    if not isinstance(value, Each) or value.key or value.collection not in code.children:
        return
    called, fields = code.children[value.collection]
    names = {
        one.column: name for name, one in value.attributes.items() if isinstance(one, Ref) and one.column
    }
    if len(names) == len(value.attributes) and set(fields) <= set(names):
        made = ", ".join(
            f"{fields[child.path]}={restoring(child.kind, f'child.get({literal(names[child.path])})')}"
            for child in code.row.value(value.collection).children
        )
        yield value.collection, f"[{called}({made}) for child in {got} or []]"


def _whole_enough(row: RowModel, ref: Ref) -> bool:
    """Whether the text of a time, perhaps cut, is enough for all its other uses in the row."""
    if len(ref.filters) != 1 or ref.format is not None or not FILTERS[ref.filters[0].name].moment:
        return False
    path, own = ref.paths[0], ref.filters[0]
    expiring = {item.expiry.path for item in row.items if item.expiry}
    if path in {condition.path for condition in row.conditions} | expiring:
        return not own.args
    uses = [use for value in row.expressions for use in uses_in(value) if path in use.ref.paths]
    return not own.args or all(_no_finer(use.ref, own) for use in uses)


def _used(row: RowModel, path: str) -> bool:
    return path in {one.path for one in row.conditions} or path in set(paths_in(row.expressions))


def _no_finer(ref: Ref, own: Filter) -> bool:
    return bool(ref.filters) and (ref.filters[0] == own or bool(unit_of(ref.filters[0])))


# ── patterns ──


class PartCode(Struct, frozen=True):
    """A part of an answer. `name`: the mapping's. `field`: in the answer. `one`: it has one record."""

    name: str
    field: str
    record: Record
    one: bool

    @property
    def type(self) -> str:
        return f"{self.record.name} | None" if self.one else f"list[{self.record.name}]"


class PatternCode:
    """`method`: of the table's class.
    `answer`: class of a record, or of all parts.
    `question`: the function that makes the request.
    `cut`: by parameter, how much of it a key holds.
    """

    def __init__(self, model: Model, asked: PatternModel, module: Names, methods: Names) -> None:
        self.model, self.pattern = asked, asked.pattern
        called, name = class_name(self.pattern.name), function_name(self.pattern.name)
        self.method = methods.one(name)
        for ending in ("_async", *(("_page", "_page_async") if asked.pages else ())):
            methods.one(self.method + ending)
        self.answer = module.one(called)
        self.has_parts = bool(self.pattern.parts[0].name)
        fields = Names()
        self.parts = []
        for part, attributes in asked.parts:
            own = part.name
            of_what = f"{f'{shown(own)} of ' if own else ''}the answer of {shown(self.pattern.name)}"
            record = Record(
                module.one(called + class_name(own)) if own else self.answer,
                f"One record of {of_what}.",
                _fields(
                    _restored(one.name, one.restored or one.kind, nullable=one.nullable) for one in attributes
                ),
                module.one(f"_{name}_{function_name(own)}" if own else f"_{name}"),
            )
            is_one = part.one if own else self.pattern.operation == "get"
            self.parts.append(
                PartCode(own, fields.one(function_name(own) if own else "records"), record, is_one)
            )
        self.params = Names().all(param.name for param in self.pattern.params)
        self.question = module.one(f"_{name}_question")
        self.cut = cut_params(self.pattern)
        given = {
            one.name: NamedValue(param(one.name), Kind(one.type), nullable=True)
            for one in self.pattern.params
        }
        if asked.many:
            given[asked.many] = NamedValue("child", given[asked.many].kind, nullable=False)
        self.star = "child" if asked.many else "text"
        self.request = PythonCode(given, model.around, of_row=False, star=self.star).request(asked)

    @property
    def records(self) -> Iterator[Record]:
        yield from (part.record for part in self.parts)
        if self.has_parts:
            fields = [Field(part.field, part.type) for part in self.parts]
            yield Record(self.answer, f"The answer of {shown(self.pattern.name)}.", fields)


def param_type(param: Param) -> str:
    one = "Decimal | int" if param.type == "number" else TYPES[param.type]
    whole = f"Sequence[{one}]" if param.many else one
    return f"{whole} | None = None" if param.optional else whole


# ── the module ──


def python_module(model: Model, head: Sequence[str], job: str, *, after: bool) -> tuple[str, Sequence[str]]:
    """A module's text, and a sentence for each part of the mapping that it cannot express.

    `head`: lines about its origin. `job`: the job file's name. `after`: it uses boto3 alone.
    """
    definitions, imports = _carried(after=after)
    module, methods = Names({*definitions, *imports}), Names(dir(table._Table))
    name = module.one(construct_name({"TableName": model.table.name}))
    rows = [RowCode(model, row, module) for row in model.rows]
    patterns = [PatternCode(model, pattern, module, methods) for pattern in model.patterns]
    records = list(item_records(model, module))
    for code in rows:
        code.name_builders(module)
    for code in (code for code in rows if after and not code.unwritten):
        code.name_methods(methods)
    text = text_template(__package__, "module.py.j2", **_FILTERS).render(
        {
            "name": name,
            "model": model,
            "table": model.table,
            "after": after,
            "job": job,
        }
        | {
            "rows": rows,
            "patterns": patterns,
            "records": records,
            "attributes": _attributes(model),
            "documents": _documents(model),
            "carry": partial(carry, definitions, imports),
        }
    )
    left_out = [f"items of {shown(code.row.name)}: {code.unwritten}" for code in rows if code.unwritten]
    left_out += [
        f"read of a row of {shown(code.row.name)}: {code.read}"
        for code in rows
        if "put" in code.methods and "read" not in code.methods
    ]
    lines = formatted(text)
    # Long names cannot be broken. RUF100 would call the remark unused where lines may be longer.
    is_wide = any(len(line) > LINE_LENGTH for line in lines.splitlines())
    remarks = [*(["ruff: noqa: E501, RUF100"] if is_wide else []), "fmt: off"]
    return f"{comment('#', [*head, *remarks])}\n\n{lines}", left_out


LINE_LENGTH = 100


def formatted(text: str) -> str:
    # Without the working directory, whose modules could have names of the library's.
    width = f"--line-length={LINE_LENGTH}"
    command = [sys.executable, "-P", "-m", "ruff", "format", "--isolated", width, "-"]
    ended = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    if ended.returncode:
        why = ended.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise SettingsError(
            f"ruff could not format the module ({why}); install migrator with its dependencies"
        )
    return ended.stdout.decode()


_FILTERS = {"literal": literal, "shown": shown, "param": param, "param_type": param_type}


def _attributes(model: Model) -> dict[str, list[str]]:
    """Attributes besides the key, by type. A write compares them to detect a change."""
    found: dict[str, list[str]] = {}
    for type_, items in model.types.items():
        names: dict[str, None] = {}
        for item in items:
            names |= dict.fromkeys(key.name for entry in item.entries for key in entry.keys)
            names |= dict.fromkeys(attribute.name for attribute in item.attributes)
            names |= {model.table.ttl: None} if item.expiry and model.table.ttl else {}
        found[type_] = list(names)
    return found


def _documents(model: Model) -> list[str]:
    """Attributes that may be DynamoDB's NULL."""
    items = (item for types in model.types.values() for item in types)
    attributes = (attribute for item in items for attribute in item.attributes)
    return list(dict.fromkeys(one.name for one in attributes if one.kind and one.kind.name == "json"))


def carry(
    definitions: Mapping[str, str], imports: Mapping[str, tuple[str, str]], code: str
) -> tuple[str, str]:
    given = {
        node.id
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    wanted, needed = _names(code), set[str]()
    while more := wanted & definitions.keys() - needed - given:
        needed |= more
        wanted = wanted.union(*(_names(definitions[name]) for name in more))
    by_module: dict[str, list[str]] = {}
    for name in sorted(wanted & imports.keys(), key=_order):
        by_module.setdefault(imports[name][0], []).append(imports[name][1])
    groups = [[f"import {name}" for name in sorted(by_module.pop("", ()))], []]
    for module in sorted(by_module):
        groups[module.startswith("migrator.")].append(f"from {module} import {', '.join(by_module[module])}")
    given_imports = "\n\n".join("\n".join(group) for group in groups if group)
    return given_imports, "\n\n\n".join(text for name, text in definitions.items() if name in needed)


def _order(name: str) -> tuple[int, str]:
    return 0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2, name


@cache
def _names(code: str) -> frozenset[str]:
    names = (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name))
    return frozenset(node.id for node in names if isinstance(node.ctx, ast.Load))


_OWN_IMPORTS = """
import asyncio
import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, TypeAlias
from uuid import UUID
"""


@cache
def _carried(*, after: bool) -> tuple[Mapping[str, str], Mapping[str, tuple[str, str]]]:
    """Definitions in a valid order, and imports as (module, imported name), by name."""
    through = resources.files(__package__).joinpath("migration.py.txt").read_text(encoding="utf-8")
    definitions: dict[str, str] = {}
    imports: dict[str, tuple[str, str]] = {}
    for source in (
        _OWN_IMPORTS,
        inspect.getsource(values),
        inspect.getsource(table) if after else through,
        readers(),
    ):
        lines, name = source.split("\n"), ""
        for node in ast.parse(source).body:
            first = min(one.lineno for one in (node, *getattr(node, "decorator_list", ())))
            text = "\n".join(lines[first - 1 : node.end_lineno])
            match node:
                case ast.Import():
                    imports |= {one.asname or one.name: ("", ast.unparse(one)) for one in node.names}
                case ast.ImportFrom(module=str(module)) if module != "__future__" and not module.startswith(
                    __package__
                ):
                    imports |= {one.name: (module, one.name) for one in node.names}
                case ast.Expr() if name:  # a constant's docstring follows it
                    definitions[name] += f"\n{text}"
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    definitions[name] = text
                case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                    definitions[name] = text
    return definitions, imports
