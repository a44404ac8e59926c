"""A whole generated module: its own code, and of the functions that it may carry those that this code uses."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

from msgspec import Struct

from migrator.features.exports.definitions import comment, construct_name, template
from migrator.features.exports.model import (
    Answered,
    Attribute,
    ItemType,
    Model,
    PatternModel,
    RowModel,
)
from migrator.features.exports.python import table, values
from migrator.features.exports.python.expressions import (
    TYPES,
    Code,
    Given,
    Names,
    UnsaidError,
    class_name,
    function_name,
    literal,
    optional,
    shown,
    tuple_of,
    type_of,
)
from migrator.features.exports.python.rows import (
    Field,
    Record,
    RowCode,
    children_of,
    item_records,
    named_fields,
    names_of,
    readers,
    restoring,
)
from migrator.mapping.items.filters import FILTERS, unit_of
from migrator.mapping.model.facts import Kind
from migrator.mapping.model.mapping import (
    Filter,
    FilterCondition,
    Param,
    Ref,
    SortCondition,
    Template,
    paths_in,
    uses_in,
)
from migrator.mapping.model.table import PARTITION_KEY_BYTES, KeyAttribute
from migrator.mapping.patterns.requests import MOVED_UP, cut_params

_PARAMS = TYPES | {"number": "Decimal | int"}


class PartCode(Struct, frozen=True):
    """A part of an answer. `name`: the mapping's; `field`: where it stands in the answer; `one`: it has one record."""

    name: str
    field: str
    record: Record
    one: bool

    @property
    def type(self) -> str:
        return f"{self.record.name} | None" if self.one else f"list[{self.record.name}]"

    @property
    def read(self) -> str:
        """What gives it of `answer`."""
        records = f"answer[{literal(self.name)}]"
        if self.one:
            return f"{self.record.function}({records}[0]) if {records} else None"
        return f"[{self.record.function}(record) for record in {records}]"


class PatternCode:
    """`method`: of the table's class; `answer`: the class of a record, or of all parts; `params`: by their names."""

    def __init__(self, model: PatternModel, module: Names, methods: Names) -> None:
        self.model, self.pattern = model, model.pattern
        called, name = class_name(self.pattern.name), function_name(self.pattern.name)
        self.method = methods.one(name)
        for ending in ("_async", *(("_page", "_page_async") if model.pages else ())):
            methods.one(self.method + ending)
        self.answer = module.one(called)
        self.has_parts = bool(model.parts[0].part.name)
        of_what, fields = f"the answer of {shown(self.pattern.name)}", Names()
        self.parts = []
        for part in model.parts:
            own = part.part.name
            record = Record(
                module.one(called + class_name(own)) if own else self.answer,
                f"One record of {f'{shown(own)} of ' if own else ''}{of_what}.",
                named_fields({one.name: _answered(one) for one in part.attributes}),
                module.one(f"_{name}_{function_name(own)}" if own else f"_{name}"),
            )
            is_one = part.part.one if own else self.pattern.operation == "get"
            field = fields.one(function_name(own) if own else "records")
            self.parts.append(PartCode(own, field, record, is_one))
        self.params = Names().all(param.name for param in self.pattern.params)
        self.question = module.one(f"_{name}_question")

    @property
    def whole(self) -> Record | None:
        """The class of an answer of several parts."""
        if not self.has_parts:
            return None
        fields = [Field(part.field, part.type) for part in self.parts]
        return Record(self.answer, f"The answer of {shown(self.pattern.name)}.", fields)

    @property
    def takes(self) -> str:
        params = [
            f"{self.params[param.name]}: {_annotation(param)}" for param in self.pattern.params
        ]
        return ", ".join(["self", *(["*", *params] if params else [])])

    @property
    def asks(self) -> str:
        """The arguments of a question: the pattern and its parameters."""
        values = {
            param.name: f"_listed({self.params[param.name]})"
            if param.many
            else self.params[param.name]
            for param in self.pattern.params
        }
        given = ", ".join(f"{literal(name)}: {value}" for name, value in values.items())
        return f"{literal(self.pattern.name)}, {{{given}}}"

    @property
    def gives(self) -> str:
        return self.answer if self.has_parts else self.parts[0].type

    @property
    def read(self) -> str:
        if not self.has_parts:
            return self.parts[0].read
        return f"{self.answer}({', '.join(f'{part.field}={part.read}' for part in self.parts)})"

    @property
    def doc(self) -> str:
        where = f"index {shown(self.model.index.name)}" if self.pattern.index else "the table"
        order = ", the last first" if self.pattern.descending else ""
        return f"The access pattern {shown(self.pattern.name)}: {self.pattern.operation} of {where}{order}."


def _answered(one: Answered) -> tuple[str, str]:
    """A record's value, restored from both sides alike."""
    kind = one.restored or one.kind
    return optional(type_of(kind), nullable=one.nullable), restoring(
        kind, f"item.get({literal(one.name)})"
    )


def _annotation(param: Param) -> str:
    one = _PARAMS[param.type]
    whole = f"Sequence[{one}]" if param.many else one
    return f"{whole} | None = None" if param.optional else whole


# ── what DynamoDB is asked ──


@dataclass(frozen=True)
class Question:
    """A function from the pattern's parameters, by their names in the mapping, to the question. `cut`: by parameter how
    much of it a key holds, '' where it holds all; `arguments`: of the question."""

    function: str
    types: str
    cut: str
    arguments: Sequence[str]


def question(model: Model, asked: PatternCode) -> Question:
    """Raises: UnsaidError."""
    cut = cut_params(asked.pattern)
    types = {param.name: _written(param) for param in asked.pattern.params}
    arguments = list(_arguments(model, asked.model))
    return Question(asked.question, literal(types), literal(cut) if cut else "", arguments)


def _arguments(model: Model, pattern: PatternModel) -> Iterator[str]:
    asked, table = pattern.pattern, model.table
    code = _code(model, pattern)
    yield literal(asked.operation)
    yield f"keys={_keys(model, pattern, code)}"
    yield f"parts={literal({part.part.name: part.part.type for part in pattern.parts})}"
    if asked.operation == "query":
        sort = [
            _test(attribute, condition, code)
            for attribute, condition in zip(pattern.index.sort, asked.sort, strict=False)
        ]
        filters = [
            f"({literal(one.attribute)}, {literal(one.operator)}, {_bounds(one, map(code.attribute, one.values))})"
            for one in asked.filters
        ]
        position = dict.fromkeys(
            attribute.name for attribute in (*table.key, *pattern.index.attributes)
        )
        yield f"sort=[{', '.join(sort)}]"
        yield f"filters=[{', '.join(filters)}]"
        yield f"index={literal(asked.index)}"
        yield f"order={tuple_of(attribute.name for attribute in pattern.index.sort)}"
        yield f"position={tuple_of(position)}"
        yield f"descending={asked.descending}"
        yield f"limit={_limit(asked.limit)}"
        if asked.near is not None and asked.star is not None:
            near = asked.near
            is_param = isinstance(near.within_m, str)
            within = f"p[{literal(near.within_m)}]" if is_param else literal(near.within_m)
            origin = ", ".join(f"p[{literal(name)}]" for name in near.origin)
            precision = asked.star.filters[0].args[0]
            yield f"near=_Near(({origin}), {tuple_of(near.at)}, {within}, {precision})"
    yield f"consistent={asked.consistent}"


def _code(model: Model, pattern: PatternModel, element: str | None = None) -> Code:
    """Code over the parameters. `element`: the one that is a list, of which an element is taken."""
    params = {param.name: param for param in pattern.pattern.params}

    def given(path: str) -> Given:
        kind = Kind(params[path].type)
        if path == element:
            return Given("child", kind, nullable=False, of_row=False)
        return Given(f"p[{literal(path)}]", kind, nullable=True, of_row=False)

    return Code(given, model.around)


def _written(param: Param) -> str:
    return f"{'optional ' if param.optional else ''}{'list of ' if param.many else ''}{param.type}"


def _test(attribute: KeyAttribute, condition: SortCondition, code: Code) -> str:
    directions = MOVED_UP.get(condition.operator, (None,))
    values = [
        code.key(value, attribute, up=up)
        for value, up in zip(condition.values, directions, strict=True)
    ]
    made = _bounds(FilterCondition(attribute.name, condition.operator, condition.values), values)
    return f"({literal(attribute.name)}, {literal(condition.operator)}, lambda: {made})"


def _bounds(condition: FilterCondition, values: Iterable[str]) -> str:
    """The values of a condition; of two bounds with parameters none may be unset alone."""
    listed = f"[{', '.join(values)}]"
    is_pair = len(condition.values) > 1 and all(any(paths_in([one])) for one in condition.values)
    return f"_both({literal(condition.attribute)}, {listed})" if is_pair else listed


def _limit(limit: str | None) -> str:
    return (
        "None" if limit is None else limit if limit.isdecimal() else f"_limit(p[{literal(limit)}])"
    )


def _keys(model: Model, pattern: PatternModel, code: Code) -> str:
    asked, table = pattern.pattern, model.table
    if asked.operation == "query":
        star = asked.star
        made = _entries(code, zip(pattern.index.partition, asked.key, strict=True), "text")
        texts = '[""]' if star is None else _texts(star.filters[0].name, star.paths, pattern)
        return f"_keys_of(lambda text: {made}, {texts}, {PARTITION_KEY_BYTES})"
    if asked.operation == "get":
        return f"_keys_of(lambda _: {_entries(code, zip(table.key, asked.templates, strict=True))}, [None])"
    used = set(paths_in(asked.templates))
    many = next(param.name for param in asked.params if param.many and param.name in used)
    of_element = _code(model, pattern, many)
    made = _entries(of_element, zip(table.key, asked.templates, strict=True))
    return f"_keys_of(lambda child: {made}, _set({literal(many)}, p[{literal(many)}]))"


def _entries(code: Code, parts: Iterable[tuple[KeyAttribute, Template]], star: str = "") -> str:
    listed = [
        f"{literal(attribute.name)}: {code.key(template, attribute, star)}"
        for attribute, template in parts
    ]
    return "{" + ", ".join(listed) + "}"


_SPANS = {
    "shard": "_shards({0})",
    "time": "_buckets({1}, {2})",
    "place": "_cells({2}, {0})",
}


def _texts(name: str, paths: Sequence[str], pattern: PatternModel) -> str:
    """What a `*` stands for, as a call."""
    star = pattern.pattern.star
    way = FILTERS[name].way
    assert star is not None
    assert way is not None
    used = star.filters[0]
    values = ", ".join(f"_set({literal(path)}, p[{literal(path)}])" for path in paths)
    return _SPANS[way.of].format(used.args[0] if used.args else "", literal(unit_of(used)), values)


class Writes(Struct, frozen=True):
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


class ReadBack(Struct, frozen=True):
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
        zone = "UTC" if kind.zone else code.model.around.timezone or "UTC"
        how = (
            f"{expiry.days}, {literal(zone)}, zoned={kind.zone}" if kind.name == "timestamp" else ""
        )
        if how:
            yield expiry.path, f"_read_expiry({read}.get({literal(ttl)}), {how})"


def _held(code: RowCode, attribute: Attribute, read: str) -> Iterator[tuple[str, str]]:
    """The row's value that an attribute holds as a whole, and what restores it."""
    value = attribute.expression
    got = f"{read}.get({literal(attribute.name)})"
    if isinstance(value, Ref) and (value.column or _whole_enough(code.row, value)):
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
    expiring = {item.expiry.path for item in row.items if item.expiry}
    if path in {condition.path for condition in row.conditions} | expiring:
        return not own.args
    uses = [use for value in row.expressions for use in uses_in(value) if path in use.ref.paths]
    return not own.args or all(_no_finer(use.ref, own) for use in uses)


def _used(row: RowModel, path: str) -> bool:
    """Whether anything but the items' time to live is made of the value."""
    return path in {one.path for one in row.conditions} or path in set(paths_in(row.expressions))


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


class Written(Struct, frozen=True):
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
        names |= {key.name: None for entry in item.entries for key in entry.keys}
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
    carried = map(inspect.getsource, (values, table) if after else (values,))
    for source in (_OWN_IMPORTS, *carried, readers(), *([] if after else [through])):
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
