"""Access patterns of a generated module: a class for each answer, a function for each pattern, the requests behind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from migrator.features.exports.model import Answered, Model, PatternModel
from migrator.features.exports.python.expressions import (
    Code,
    Given,
    Names,
    class_name,
    function_name,
    literal,
    optional,
    shown,
    tuple_of,
    type_of,
)
from migrator.features.exports.python.rows import Field, Record, named_fields, restoring
from migrator.mapping.items.filters import FILTERS, unit_of
from migrator.mapping.model.facts import Kind
from migrator.mapping.model.mapping import FilterCondition, Param, SortCondition, Template, paths_in
from migrator.mapping.model.table import PARTITION_KEY_BYTES, KeyAttribute
from migrator.mapping.patterns.requests import MOVED_UP, cut_params

_PARAMS = {
    "integer": "int",
    "number": "Decimal | int",
    "text": "str",
    "boolean": "bool",
    "date": "dt.date",
    "timestamp": "dt.datetime",
    "uuid": "UUID",
    "binary": "bytes",
}


@dataclass(frozen=True)
class PartCode:
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

    return Code(given, model.table.separator, model.maps, model.timezone)


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
    templates = [*asked.key, *(condition.values[0] for condition in asked.sort)]
    if asked.operation == "get":
        return (
            f"_keys_of(lambda _: {_entries(code, zip(table.key, templates, strict=True))}, [None])"
        )
    used = set(paths_in(templates))
    many = next(param.name for param in asked.params if param.many and param.name in used)
    of_element = _code(model, pattern, many)
    made = _entries(of_element, zip(table.key, templates, strict=True))
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
