"""A whole generated module: its own code, and of the functions that it may carry those that this code uses."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

from migrator.features.exports.file import comment, construct_name, template
from migrator.features.exports.model import Attribute, ItemType, Model, RowModel
from migrator.features.exports.python import spans, table, values, writes
from migrator.features.exports.python.expressions import (
    Names,
    UnsaidError,
    literal,
    shown,
    tuple_of,
)
from migrator.features.exports.python.patterns import PatternCode, Question, question
from migrator.features.exports.python.rows import (
    RowCode,
    children_of,
    is_bare,
    item_records,
    names_of,
    restoring,
)
from migrator.mapping.items.filters import FILTERS, unit_of
from migrator.mapping.model.mapping import Condition, Expression, Filter, Ref, paths_in, uses_in


@dataclass(frozen=True)
class Writes:
    """Methods of the table's class that write a row's items together. `version`: the attribute that counts the row's
    changes, as Python; `counted`: what the count becomes, '' without one; `read`: why there is no read, or how."""

    code: RowCode
    put: str
    change: str
    delete: str
    read: ReadBack | str

    @property
    def version(self) -> str:
        return literal(self.code.row.version and self.code.row.version[0])

    @property
    def counted(self) -> str:
        version, row = self.code.row.version, self.code.row
        if version is None:
            return ""
        name = self.code.names.fields[version[1]]
        before = f"(before.{name} or 0)" if row.value(version[1]).nullable else f"before.{name}"
        return f"{name}={before} + 1"

    def source(self, of: str) -> str:
        """What says which row the items are of."""
        names, row = self.code.names, self.code.row
        return f"({literal(row.name)}, [{', '.join(f'{of}.{names.fields[path]}' for path in row.key)}])"


def writes_of(code: RowCode, methods: Names) -> Writes:
    put, change, delete = (
        methods.one(f"{does}_{code.names.function}") for does in ("put", "change", "delete")
    )
    try:
        found: ReadBack | str = read_back(code, methods)
    except UnsaidError as error:
        found = str(error)
    return Writes(code, put, change, delete, found)


# ── a row read back ──


@dataclass(frozen=True)
class ReadBack:
    """A method that reads a row back from its items, to be changed or deleted. `same`: its arguments, passed on; `steps`:
    the items to read, each with the call that makes its key; `values`: by field what gives it."""

    method: str
    takes: str
    same: str
    doc: str
    steps: Sequence[tuple[str, str]]
    values: Sequence[tuple[str, str]]


def read_back(code: RowCode, methods: Names) -> ReadBack:
    """Raises: UnsaidError where the row's items do not hold all that they are made of."""
    reasons, names = [], code.names
    for first in code.row.items:
        steps, found = _steps(code, first)
        missing = [value.path for value in code.row.values if value.path not in found]
        if missing:
            reasons.append(
                f"by the key of {shown(first.name)} nothing gives {', '.join(map(shown, missing))}"
            )
            continue
        fields = [names.fields[path] for path in code.paths(first.key)]
        listed = ", ".join(shown(item.name) for item, _ in steps)
        return ReadBack(
            methods.one(f"read_{names.function}"),
            ", ".join(filter(None, ("self", code.arguments(first.key)))),
            ", ".join(f"{name}={name}" for name in fields),
            f"The row as its item {listed} holds it; None where there is none.",
            [
                (item.name, f"{names.keys[item.name]}({', '.join(arguments)})")
                for item, arguments in steps
            ],
            [(names.fields[value.path], found[value.path]) for value in code.row.values],
        )
    raise UnsaidError("; ".join(reasons))


def _steps(
    code: RowCode, first: ItemType
) -> tuple[list[tuple[ItemType, list[str]]], dict[str, str]]:
    """Items to read, each with the arguments of its key, and by path of a value what then gives it.

    The first is read by arguments, others by what those before them hold. An item that may not be there is not read.
    """
    names, row = code.names, code.row
    # A list is no argument that a service would have.
    found = {
        path: names.fields[path] for path in code.paths(first.key) if path not in names.children
    }
    steps: list[tuple[ItemType, list[str]]] = []
    for item in [first, *(other for other in row.items if other is not first)]:
        paths = code.paths(item.key)
        held = {} if item.when else dict(_all_held(code, item, f"_read{len(steps)}"))
        if not (set(paths) <= set(found) and (not steps or set(held) - set(found))):
            continue
        steps.append((item, [f"{names.fields[path]}={found[path]}" for path in paths]))
        found = {**held, **found} if len(steps) > 1 else {**found, **held}
    return steps, found


def _all_held(code: RowCode, item: ItemType, read: str) -> Iterator[tuple[str, str]]:
    """The row's values that an item holds, by their paths, each with what restores it. `read`: the item's variable."""
    for attribute in item.attributes:
        yield from _held(code, attribute, read)
    expiry, ttl = item.expiry, code.model.table.ttl
    if expiry is not None and ttl is not None and not _used(code.row, expiry.path):
        kind = code.row.value(expiry.path).kind
        zone = "UTC" if kind.zone else code.model.timezone or "UTC"
        how = (
            f"{expiry.days}, {literal(zone)}, zoned={kind.zone}" if kind.name == "timestamp" else ""
        )
        if how:
            yield expiry.path, f"_read_expiry({read}.get({literal(ttl)}), {how})"


def _held(code: RowCode, attribute: Attribute, read: str) -> Iterator[tuple[str, str]]:
    """The row's value that an attribute holds as a whole, and what restores it."""
    value = attribute.expression
    got = f"{read}.get({literal(attribute.name)})"
    if isinstance(value, Ref) and (is_bare(value) or _whole_enough(code.row, value)):
        yield value.paths[0], restoring(code.row.value(value.paths[0]).kind, got)
    entries = children_of(attribute)
    for path, (called, fields) in code.names.children.items():
        rows = code.row.value(path)
        if entries is None or _collection(attribute) != path or set(fields) - set(entries):
            continue
        made = ", ".join(
            f"{fields[child.path]}={restoring(child.kind, f'child.get({literal(entries[child.path])})')}"
            for child in rows.children
        )
        yield path, f"[{called}({made}) for child in {got} or []]"


def _collection(attribute: Attribute) -> str | None:
    return next((use.collection for use in uses_in(attribute.expression)), None)


def _whole_enough(row: RowModel, ref: Ref) -> bool:
    """Whether the text of a time, cut perhaps, says all that anything else of the row takes of it."""
    if len(ref.filters) != 1 or ref.format is not None or not FILTERS[ref.filters[0].name].moment:
        return False
    path, own = ref.paths[0], ref.filters[0]
    conditions = [
        *row.where,
        *(one for item in row.items for one in (*item.when, *_of_entries(item))),
    ]
    if path in {condition.path for condition in conditions} or path in _expiring(row):
        return not own.args
    uses = [use for value in _expressions(row) for use in uses_in(value) if path in use.ref.paths]
    return not own.args or all(_no_finer(use.ref, own) for use in uses)


def _used(row: RowModel, path: str) -> bool:
    """Whether anything but the items' time to live is made of the value."""
    conditions = [
        *row.where,
        *(one for item in row.items for one in (*item.when, *_of_entries(item))),
    ]
    return path in {one.path for one in conditions} or path in set(paths_in(_expressions(row)))


def _of_entries(item: ItemType) -> Iterator[Condition]:
    return (condition for entry in item.indexes for condition in entry.when)


def _expiring(row: RowModel) -> set[str]:
    return {item.expiry.path for item in row.items if item.expiry}


def _expressions(row: RowModel) -> Iterator[Expression]:
    for item in row.items:
        yield from (part.template for part in item.key)
        yield from (part.template for entry in item.indexes for part in entry.parts)
        yield from (attribute.expression for attribute in item.attributes)


def _no_finer(ref: Ref, own: Filter) -> bool:
    return bool(ref.filters) and (ref.filters[0] == own or bool(unit_of(ref.filters[0])))


WIDTH = 100
_TOKENS = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<comma>,)"""
    r"""|(?P<for>\ (?=for\ ))|(?P<if>\ (?=(?:if|else)\ ))|(?P<or>\ (?=or\ ))|(?P<and>\ (?=and\ ))"""
    r"""|(?P<is>\ (?=(?:is|==|!=)\ ))"""
    r"""|(?P<plus>\ (?=\+\ ))|(?P<lambda>lambda\b)""",
    re.VERBOSE,
)
_STATEMENT = re.compile(r"(if|return|\w+ \|=) ")
_OPERATORS = ("for", "if", "or", "and", "is", "plus")
"""What a text is split before, the loosest first."""


def laid(code: str) -> str:
    """The code, every statement of which is one line, with no line longer than it must be."""
    return "\n".join(line for whole in code.split("\n") for line in _lines(whole))


def _lines(line: str) -> Iterator[str]:
    text = line.lstrip()
    if len(line) <= WIDTH or text.startswith(("#", '"""')):
        yield line
        return
    indent = line[: -len(text)]
    word = _STATEMENT.match(text)
    if word is not None and _cuts(whole := text[word.end() :].removesuffix(":")):
        yield f"{indent}{word[0]}("
        yield from _inside(whole, f"{indent}    ")
        yield f"{indent}){':' if text.endswith(':') else ''}"
        return
    yield from _in_brackets(text, indent)


def _in_brackets(text: str, indent: str) -> Iterator[str]:
    """The text with its last brackets opened, of a function's head its first."""
    pairs = list(_pairs(text))
    start, end = (
        next(iter(pairs), (0, 0)) if re.match(r"(async )?def ", text) else (pairs or [(0, 0)])[-1]
    )
    body = text[start + 1 : end]
    if not body:
        yield indent + text
        return
    yield indent + text[: start + 1]
    inner = f"{indent}    "
    commas = [match.start() for match in _outer(body) if match.lastgroup == "comma"]
    is_call = start > 0 and (text[start - 1].isalnum() or text[start - 1] in "_)]")
    if len(inner + body) <= WIDTH and (is_call or not commas):
        yield inner + body
    elif commas:
        for part in _parts(body, commas, 1):
            yield from _inside(f"{part.strip()},", inner)
    else:
        yield from _inside(f"{body}{',' if _is_list(body, is_call) else ''}", inner)
    yield indent + text[end:]


def _is_list(body: str, is_call: bool) -> bool:
    """Whether what stands in the brackets, alone, takes a comma behind it."""
    return (
        is_call
        and not any(match.lastgroup == "for" for match in _outer(body))
        and body[0] not in "[{("
    )


def _inside(text: str, indent: str) -> Iterator[str]:
    """A text that stands in brackets."""
    if len(indent + text) <= WIDTH:
        yield indent + text
    elif cuts := _cuts(text):
        for part in _parts(text, cuts, 0):
            yield from _inside(part.strip(), indent)
    else:
        yield from _in_brackets(text, indent)


def _cuts(text: str) -> list[int]:
    """Where the loosest operator outside of brackets stands."""
    found = list(_outer(text))
    if any(match.lastgroup == "lambda" for match in found):
        return []
    listed = (
        [match.start() for match in found if match.lastgroup == operator] for operator in _OPERATORS
    )
    return next(filter(None, listed), [])


def _parts(text: str, cuts: list[int], width: int) -> list[str]:
    starts = [0, *(cut + width for cut in cuts)]
    return [text[start:end] for start, end in zip(starts, [*cuts, len(text)], strict=True)]


def _outer(text: str) -> Iterator[re.Match[str]]:
    """Tokens outside of brackets."""
    depth = 0
    for match in _TOKENS.finditer(text):
        depth -= match.lastgroup == "close"
        if depth == 0:
            yield match
        depth += match.lastgroup == "open"


def _pairs(text: str) -> Iterator[tuple[int, int]]:
    """Outermost brackets, from and to."""
    start = 0
    for match in _outer(text):
        if match.lastgroup == "open":
            start = match.start()
        elif match.lastgroup == "close":
            yield start, match.start()


_OWN_IMPORTS = """
import asyncio
import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any
from uuid import UUID
"""
_CARRIED = "# ── carried ──\n"
"""Where in the template carried code stands."""


@dataclass(frozen=True)
class Written:
    """A module's text, and what it cannot say of the mapping, one sentence for each."""

    text: str
    left_out: tuple[str, ...]


def python_module(model: Model, head: Sequence[str], job: str, *, after: bool) -> Written:
    """The module. `head`: what it says of itself; `job`: the job file's name; `after`: whether it is on boto3 alone.

    Raises: UnsaidError naming everything of the access patterns that has no Python.
    """
    shelf = _shelf(after=after)
    module, methods = Names(shelf.names), Names(dir(table._Table))
    name = module.one(construct_name({"TableName": model.table.name}))
    codes = [RowCode(model, row, names_of(row, module)) for row in model.rows]
    patterns = [PatternCode(pattern, module, methods) for pattern in model.patterns]
    records = list(item_records(model, module))
    rows = [(code, list(code.builders(module)), code.items()) for code in codes]
    written = {
        code.row.name: writes_of(code, methods) for code in codes if after and not code.unwritten
    }
    constants = _constants(model) if after else {"JOB": literal(job)}
    top, _, bottom = laid(
        template(__package__, "module.py.j2", literal=literal, shown=shown).render(
            {"name": name, "table": model.table, "after": after, "records": records, "rows": rows}
            | {"patterns": patterns, "questions": _questions(model, patterns) if after else []}
            | {"attributes": _attributes(model), "writes": written}
        )
    ).partition(_CARRIED)
    how = "on boto3 alone" if after else "through migrator, while SQL and the table both answer"
    imports, definitions = shelf.used_by(
        top + bottom, {named.partition(":")[0] for named in constants}
    )
    said = f"Rows, items and access patterns of the table {shown(model.table.name)}, {how}."
    given = "\n".join(f"{named} = {value}" for named, value in constants.items())
    first = f'{comment("#", head)}\n\n"""{said}"""\n\nfrom __future__ import annotations\n\n{imports}\n\n{given}'
    text = "\n\n\n".join(filter(None, (first.strip(), top.strip(), definitions, bottom.strip())))
    left_out = [
        f"items of {shown(code.row.name)}: {code.unwritten}" for code in codes if code.unwritten
    ]
    left_out += [
        f"read of a row of {shown(of)}: {one.read}"
        for of, one in written.items()
        if isinstance(one.read, str)
    ]
    return Written(f"{text}\n", tuple(left_out))


def _questions(model: Model, patterns: Sequence[PatternCode]) -> list[Question]:
    found, faults = [], []
    for asked in patterns:
        try:
            found.append(question(model, asked))
        except UnsaidError as error:
            faults.append(f"{asked.pattern.name}: {error}")
    if faults:
        raise UnsaidError("\n".join(faults))
    return found


def _attributes(model: Model) -> dict[str, str]:
    """Attributes that items of a type may have beside their key, by which a write knows whether one is as it was."""
    ttl = model.table.ttl
    found: dict[str, dict[str, None]] = {}
    for item in (item for row in model.rows for item in row.items):
        names = found.setdefault(item.name, {})
        names |= {part.attribute.name: None for entry in item.indexes for part in entry.parts}
        names |= {attribute.name: None for attribute in item.attributes}
        names |= {ttl: None} if item.expiry and ttl else {}
    return {literal(type_): tuple_of(names) for type_, names in found.items()}


def _constants(model: Model) -> dict[str, str]:
    design = model.table
    return {
        "TABLE": literal(design.name),
        "_KEY: tuple[str, ...]": tuple_of(attribute.name for attribute in design.key),
        "_TYPE": literal(design.type_attribute),
        "_TTL: str | None": literal(design.ttl),
        "_REVISION": literal(model.revision),
        "_OWN": tuple_of((design.source_attribute, design.revision_attribute)),
    }


# ── what is carried ──


@dataclass
class _Shelf:
    """Imports, by the names that they give, and definitions that a module may carry, in the order in which they may
    stand: of each its text, the names that it uses, and whether it is a class or a function."""

    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    uses: dict[str, frozenset[str]] = field(default_factory=dict)
    blocks: set[str] = field(default_factory=set)

    @property
    def names(self) -> set[str]:
        return {*self.imports, *self.texts}

    def add(self, source: str) -> None:
        lines, last = source.split("\n"), ""
        for node in ast.parse(source).body:
            first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
            text = "\n".join(lines[first - 1 : node.end_lineno])
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                module = getattr(node, "module", "")
                if module != "__future__" and not module.startswith(__package__):
                    self.imports |= {
                        one.asname or one.name: (module, _named(one)) for one in node.names
                    }
            elif not isinstance(node, ast.Expr):
                last = _name(node)
                self.texts[last], self.uses[last] = text, _uses(node)
                self.blocks |= (
                    {last} if isinstance(node, (ast.ClassDef, ast.FunctionDef)) else set()
                )
            elif last:
                # What is said of a constant stands below it; of the module, above all.
                self.texts[last] += f"\n{text}"

    def used_by(self, code: str, own: set[str]) -> tuple[str, str]:
        """The imports and the definitions that the code needs. `own`: names that the module gives itself."""
        wanted, needed = set(_uses(ast.parse(code))), set[str]()
        while more := (wanted & self.names) - needed - own - {"_QUESTIONS", "_ATTRIBUTES"}:
            needed |= more
            wanted |= {used for name in more for used in self.uses.get(name, ())}
        definitions = ""
        for name, text in ((name, text) for name, text in self.texts.items() if name in needed):
            apart = "\n\n\n" if name in self.blocks or definitions.endswith("\n\n\n") else "\n"
            definitions = f"{definitions.rstrip()}{apart}{text}" + (
                "\n\n\n" if name in self.blocks else ""
            )
        return _sorted(
            self.imports[name] for name in needed if name in self.imports
        ), definitions.strip()


@cache
def _shelf(*, after: bool) -> _Shelf:
    through = resources.files(__package__).joinpath("migration.py.txt").read_text(encoding="utf-8")
    shelf = _Shelf()
    carried = map(inspect.getsource, (values, spans, table, writes) if after else (values,))
    for source in (_OWN_IMPORTS, *carried, *([] if after else [through])):
        shelf.add(source)
    return shelf


def _name(node: ast.stmt) -> str:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return node.name
    targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
    return next(target.id for target in targets if isinstance(target, ast.Name))


def _named(one: ast.alias) -> str:
    return f"{one.name} as {one.asname}" if one.asname else one.name


def _sorted(imports: Iterable[tuple[str, str]]) -> str:
    """Imports in the usual order: modules, names of each module in one line; migrator's behind the standard library's."""
    names: dict[str, list[str]] = {}
    for module, name in sorted(set(imports), key=_order):
        names.setdefault(module, []).append(name)
    lines = [f"import {name}" for name in names.pop("", [])]
    lines += [
        f"from {module} import {', '.join(found)}"
        for module, found in names.items()
        if module[:8] != "migrator"
    ]
    own = [
        f"from {module} import {', '.join(found)}"
        for module, found in names.items()
        if module[:8] == "migrator"
    ]
    return "\n".join([*lines, *(["", *own] if own else [])])


def _order(one: tuple[str, str]) -> tuple[str, int, str]:
    """Constants, classes, functions."""
    module, name = one
    return module, 0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2, name


def _uses(tree: ast.AST) -> frozenset[str]:
    """Names that code reads."""
    return frozenset(
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    )
