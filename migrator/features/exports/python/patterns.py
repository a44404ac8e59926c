"""Access patterns of a generated module: a class for each answer, a function for each pattern, the requests behind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from migrator.features.exports.model import Answered, Model, PartModel, PatternModel
from migrator.features.exports.python.expressions import (
    Code,
    Given,
    Names,
    class_name,
    function_name,
    literal,
    optional,
    shown,
    type_of,
)
from migrator.features.exports.python.rows import dataclass_lines, reader
from migrator.mapping.items.filters import FILTERS, unit_of
from migrator.mapping.model.facts import Kind
from migrator.mapping.model.mapping import Param, SortCondition, Template, paths_in
from migrator.mapping.model.table import PARTITION_KEY_BYTES, KeyAttribute
from migrator.mapping.patterns.requests import MOVED_UP, cut_params


@dataclass(frozen=True)
class PatternNames:
    """`method`: of the table's class; `answer`: the class of a record, or of all parts; `parts`: of each part its class, the
    function that makes one, and its name in the answer. `params`: by their names."""

    method: str
    question: str
    answer: str
    parts: Mapping[str, tuple[str, str, str]]
    params: Mapping[str, str]


def names_of(pattern: PatternModel, module: Names, methods: Names) -> PatternNames:
    called, name = class_name(pattern.pattern.name), function_name(pattern.pattern.name)
    method = methods.one(name)
    for ending in ("_async", *(("_page", "_page_async") if pattern.pages else ())):
        methods.one(method + ending)
    answer = module.one(called)
    fields = Names()
    parts = {
        part.part.name: (
            module.one(called + class_name(part.part.name)) if part.part.name else answer,
            module.one(f"_{name}_{function_name(part.part.name)}" if part.part.name else f"_{name}"),
            fields.one(identifier_of(part)),
        )
        for part in pattern.parts
    }
    params = Names().all(param.name for param in pattern.pattern.params)
    return PatternNames(method, module.one(f"_{name}_question"), answer, parts, params)


def identifier_of(part: PartModel) -> str:
    return function_name(part.part.name) if part.part.name else "records"


# ── answers ──


def answer_classes(pattern: PatternModel, names: PatternNames) -> Iterator[str]:
    called = shown(pattern.pattern.name)
    for part in pattern.parts:
        record, function, _ = names.parts[part.part.name]
        what = (
            f"{shown(part.part.name)} of the answer of {called}"
            if part.part.name
            else f"the answer of {called}"
        )
        yield from _record_class(record, function, f"One record of {what}.", part.attributes)
    if pattern.parts[0].part.name:
        fields = [
            (field, f"{record} | None" if _part(pattern, name).part.one else f"list[{record}]", "")
            for name, (record, _, field) in names.parts.items()
        ]
        yield from dataclass_lines(names.answer, f"The answer of {called}.", fields)


def _part(pattern: PatternModel, name: str) -> PartModel:
    return next(part for part in pattern.parts if part.part.name == name)


def _record_class(name: str, function: str, doc: str, attributes: Sequence[Answered]) -> Iterator[str]:
    fields = Names().all(attribute.name for attribute in attributes)
    listed = [
        (
            fields[one.name],
            optional(type_of(_kind(one)), nullable=one.nullable),
            shown(one.name) if fields[one.name] != one.name else "",
        )
        for one in attributes
    ]
    yield from dataclass_lines(name, doc, listed)
    yield f"def {function}(item: Mapping[str, Any]) -> {name}:"
    yield f"    return {name}("
    for one in attributes:
        yield f"        {fields[one.name]}={reader(_kind(one))}(item.get({one.name!r})),"
    yield "    )"
    yield ""
    yield ""


def _kind(answered: Answered) -> Kind | None:
    """What a record's value is restored to: from both sides alike."""
    return answered.restored or answered.kind


# ── the function of a pattern ──

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


def _annotation(param: Param) -> str:
    one = _PARAMS[param.type]
    whole = f"Sequence[{one}]" if param.many else one
    return f"{whole} | None = None" if param.optional else whole


def methods(pattern: PatternModel, names: PatternNames) -> Iterator[str]:
    """The methods of the table's class that ask the pattern: sync and async, and page by page."""
    doc = _doc(pattern)
    params = [f"{names.params[param.name]}: {_annotation(param)}" for param in pattern.pattern.params]
    given = "{" + ", ".join(f"{_name!r}: {value}" for _name, value in _values(pattern, names)) + "}"
    asked = f"({pattern.pattern.name!r}, {given})"
    gives = _gives(pattern, names)
    takes = ", ".join(["self", *(["*", *params] if params else [])])
    for prefix, ending, call in (("", "", "self._ask"), ("async ", "_async", "await self._ask_async")):
        yield f"    {prefix}def {names.method}{ending}({takes}) -> {gives}:"
        yield f'        """{doc}"""'
        yield f"        answer = {call}{asked}"
        yield f"        return {_answer(pattern, names)}"
        yield ""
    if not pattern.pages:
        return
    record, function, _ = names.parts[""]
    takes = ", ".join(["self", "*", *params, "cursor: str | None = None", "size: int = 20"])
    for prefix, ending, call in (("", "", "self._page"), ("async ", "_async", "await self._page_async")):
        yield f"    {prefix}def {names.method}_page{ending}({takes}) -> Page[{record}]:"
        yield '        """The same page by page: `next` is the cursor of the next page."""'
        yield f"        records, following = {call}({asked[1:-1]}, cursor, size)"
        yield f"        return Page([{function}(record) for record in records], following)"
        yield ""


def _doc(pattern: PatternModel) -> str:
    where = f"index {shown(pattern.index.name)}" if pattern.pattern.index else "the table"
    order = ", the last first" if pattern.pattern.descending else ""
    return f"The access pattern {shown(pattern.pattern.name)}: {pattern.pattern.operation} of {where}{order}."


def _values(pattern: PatternModel, names: PatternNames) -> Iterator[tuple[str, str]]:
    for param in pattern.pattern.params:
        value = names.params[param.name]
        if param.many:
            value = f"_listed({value})"
        yield param.name, value


def _gives(pattern: PatternModel, names: PatternNames) -> str:
    if pattern.parts[0].part.name:
        return names.answer
    return f"{names.answer} | None" if pattern.pattern.operation == "get" else f"list[{names.answer}]"


def _answer(pattern: PatternModel, names: PatternNames) -> str:
    if not pattern.parts[0].part.name:
        return _records("", names, one=pattern.pattern.operation == "get")
    parts = [
        f"{field}={_records(name, names, one=_part(pattern, name).part.one)}"
        for name, (_, _, field) in names.parts.items()
    ]
    return f"{names.answer}({', '.join(parts)})"


def _records(part: str, names: PatternNames, *, one: bool) -> str:
    function = names.parts[part][1]
    if one:
        return f"{function}(answer[{part!r}][0]) if answer[{part!r}] else None"
    return f"[{function}(record) for record in answer[{part!r}]]"


# ── what DynamoDB is asked ──


def question(model: Model, pattern: PatternModel, names: PatternNames) -> Iterator[str]:
    """A function from the pattern's parameters, by their names in the mapping, to the question. Raises: UnsaidError."""
    asked, table = pattern.pattern, model.table
    code = _code(model, pattern)
    parts = {part.part.name: part.part.type for part in pattern.parts}
    types = {param.name: _written(param) for param in asked.params}
    yield f"def {names.question}(p: Mapping[str, Any]) -> _Question:"
    yield f"    p = _checked(p, {types!r})"
    if cut := cut_params(asked):
        yield f"    _refuse_cut(p, {cut!r})"
    yield "    return _Question("
    yield f"        {asked.operation!r},"
    yield f"        keys={_keys(model, pattern, code)},"
    yield f"        parts={parts!r},"
    if asked.operation == "query":
        sort = [
            _test(attribute, condition, code)
            for attribute, condition in zip(pattern.index.sort, asked.sort, strict=False)
        ]
        filters = [
            f"({one.attribute!r}, {one.operator!r}, [{', '.join(map(code.attribute, one.values))}])"
            for one in asked.filters
        ]
        position = dict.fromkeys(attribute.name for attribute in (*table.key, *pattern.index.attributes))
        yield f"        sort=[{', '.join(sort)}],"
        yield f"        filters=[{', '.join(filters)}],"
        yield f"        index={asked.index!r},"
        yield f"        order={tuple(attribute.name for attribute in pattern.index.sort)!r},"
        yield f"        position={tuple(position)!r},"
        yield f"        descending={asked.descending},"
        yield f"        limit={_limit(asked.limit)},"
        if asked.near is not None and asked.star is not None:
            near = asked.near
            within = f"p[{near.within_m!r}]" if isinstance(near.within_m, str) else literal(near.within_m)
            origin = f"(p[{near.origin[0]!r}], p[{near.origin[1]!r}])"
            precision = asked.star.filters[0].args[0]
            yield f"        near=_Near({origin}, {near.at!r}, {within}, {precision}),"
    yield f"        consistent={asked.consistent},"
    yield "    )"
    yield ""
    yield ""


def _code(model: Model, pattern: PatternModel, element: str | None = None) -> Code:
    """Code over the parameters. `element`: the one that is a list, of which an element is taken."""
    params = {param.name: param for param in pattern.pattern.params}

    def given(path: str) -> Given:
        kind = Kind(params[path].type)
        if path == element:
            return Given("child", kind, nullable=False, of_row=False)
        return Given(f"p[{path!r}]", kind, nullable=True, of_row=False)

    return Code(given, model.table.separator, model.maps, model.timezone)


def _written(param: Param) -> str:
    return f"{'optional ' if param.optional else ''}{'list of ' if param.many else ''}{param.type}"


def _test(attribute: KeyAttribute, condition: SortCondition, code: Code) -> str:
    directions = MOVED_UP.get(condition.operator, (None,))
    values = [
        code.key(value, attribute, up=up) for value, up in zip(condition.values, directions, strict=True)
    ]
    return f"({attribute.name!r}, {condition.operator!r}, lambda: [{', '.join(values)}])"


def _limit(limit: str | None) -> str:
    return "None" if limit is None else limit if limit.isdecimal() else f"_limit(p[{limit!r}])"


def _keys(model: Model, pattern: PatternModel, code: Code) -> str:
    asked, table = pattern.pattern, model.table
    if asked.operation == "query":
        star = asked.star
        made = _entries(code, zip(pattern.index.partition, asked.key, strict=True), "text")
        texts = "['']" if star is None else _texts(star.filters[0].name, star.paths, pattern)
        return f"_keys_of(lambda text: {made}, {texts}, {PARTITION_KEY_BYTES})"
    templates = [*asked.key, *(condition.values[0] for condition in asked.sort)]
    if asked.operation == "get":
        return f"_keys_of(lambda _: {_entries(code, zip(table.key, templates, strict=True))}, [None])"
    used = set(paths_in(templates))
    many = next(param.name for param in asked.params if param.many and param.name in used)
    of_element = _code(model, pattern, many)
    made = _entries(of_element, zip(table.key, templates, strict=True))
    return f"_keys_of(lambda child: {made}, _set({many!r}, p[{many!r}]))"


def _entries(code: Code, parts: Iterable[tuple[KeyAttribute, Template]], star: str = "") -> str:
    listed = [f"{attribute.name!r}: {code.key(template, attribute, star)}" for attribute, template in parts]
    return "{" + ", ".join(listed) + "}"


_SPANS = {
    "shard": "_shards({0})",
    "time": "_buckets({1!r}, {2})",
    "place": "_cells({2}, {0})",
}


def _texts(name: str, paths: Sequence[str], pattern: PatternModel) -> str:
    """What a `*` stands for, as a call."""
    star = pattern.pattern.star
    way = FILTERS[name].way
    assert star is not None
    assert way is not None
    used = star.filters[0]
    values = ", ".join(f"_set({path!r}, p[{path!r}])" for path in paths)
    return _SPANS[way.of].format(used.args[0] if used.args else "", unit_of(used), values)
