"""Access patterns as functions in TypeScript: parameters in, the answer's attributes out, asked through ElectroDB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from migrator.features.exports.model import Answered, PartModel, PatternModel
from migrator.features.exports.typescript.keys import (
    TEXT,
    Around,
    Refusals,
    UnsayableError,
    as_text,
    key_expression,
    text_expression,
)
from migrator.features.exports.typescript.language import (
    Identifiers,
    block,
    commented,
    listed,
    literal,
    member,
    property_,
    quoted,
    type_of,
)
from migrator.mapping.items.filters import CHARACTERS, unit_of
from migrator.mapping.model.facts import Kind
from migrator.mapping.model.mapping import (
    Const,
    Expression,
    Filter,
    Near,
    Operator,
    Param,
    Pattern,
    Ref,
    Template,
    paths_in,
)
from migrator.mapping.model.table import KeyAttribute
from migrator.mapping.patterns.requests import MOVED_UP, cut_params

_OPERATORS: Mapping[Operator, str] = {
    "equal": "=",
    "begins_with": "begins_with",
    "between": "between",
    "ge": ">=",
    "gt": ">",
    "le": "<=",
    "lt": "<",
}


def pattern_function(
    asked: PatternModel, names: Identifiers, around: Around, refusals: Refusals
) -> list[str]:
    """The lines of the pattern's types and its function."""
    pattern = asked.pattern
    if len(asked.index.partition) > 1 or len(asked.index.sort) > 1:
        # The index itself is refused.
        return []
    function = names.function(pattern.name)
    title = names.type(pattern.name)
    params = [f"params: {title}Params"] if pattern.params else []
    try:
        body = _Writer(asked, around).body(title)
    except UnsayableError as error:
        refusals.add(f"access_patterns.{pattern.name}", str(error))
        return []
    answer = _answer_type(asked, title)
    arguments = ", ".join(["client: Entities", *params])
    return [
        *_params(pattern, title),
        *(line for part in asked.parts for line in _record(part, _record_name(part, title))),
        f"/** The access pattern {commented(pattern.name)}. */",
        f"export async function {function}({arguments}): Promise<{answer}> {{",
        *block(body),
        "}",
        "",
    ]


def _params(pattern: Pattern, title: str) -> list[str]:
    if not pattern.params:
        return []
    fields = [
        f"{property_(param.name)}{'?' if param.optional else ''}: {_param_type(param)};"
        for param in pattern.params
    ]
    return [f"export interface {title}Params {{", *block(fields), "}", ""]


def _param_type(param: Param) -> str:
    type_ = type_of(Kind(param.type))
    listed_ = f"readonly {type_}[]" if param.many else type_
    return f"{listed_} | null" if param.optional else listed_


def _checked_type(param: Param) -> str:
    return f"{type_of(Kind(param.type))}{'[]' if param.many else ''}{'?' if param.optional else ''}"


def _record(part: PartModel, name: str) -> list[str]:
    fields = [_answered(answered) for answered in part.attributes]
    return [f"export interface {name} {{", *block(fields), "}", ""]


def _answered(answered: Answered) -> str:
    return f"{property_(answered.name)}{'?' if answered.nullable else ''}: {type_of(answered.kind)};"


def _record_name(part: PartModel, title: str) -> str:
    return f"{title}{Identifiers().type(part.part.name) if part.part.name else ''}Record"


def _answer_type(asked: PatternModel, title: str) -> str:
    if not asked.parts[0].part.name:
        name = _record_name(asked.parts[0], title)
        return f"{name} | undefined" if asked.pattern.operation == "get" else f"{name}[]"
    fields = (f"{property_(part.part.name)}{_held(part, title)}" for part in asked.parts)
    return f"{{ {'; '.join(fields)} }}"


def _held(part: PartModel, title: str) -> str:
    name = _record_name(part, title)
    return f"?: {name}" if part.part.one else f": {name}[]"


class _Writer:
    """One pattern's function. Raises: UnsayableError."""

    def __init__(self, asked: PatternModel, around: Around) -> None:
        self.asked, self.around = asked, around
        self.pattern = asked.pattern
        self.params = {param.name: param for param in asked.pattern.params}
        self.many = ""

    def body(self, title: str) -> list[str]:
        lines = self._query() if self.pattern.operation == "query" else self._keys()
        types = ", ".join(
            f"{property_(name)}: {quoted(_checked_type(one))}" for name, one in self.params.items()
        )
        check = [f"checkParams(params, {{ {types} }});"] if types else []
        cut = ", ".join(
            f"{property_(name)}: {CHARACTERS[unit]}" for name, unit in cut_params(self.pattern).items()
        )
        check += [f"refuseCut(params, {{ {cut} }});"] if cut else []
        return [*check, *lines, *self._picked(title)]

    # ── requests ──

    def _query(self) -> list[str]:
        index, pattern = self.asked.index, self.pattern
        (hash_,) = index.partition
        fields = [f"index: {quoted(index.name)}"] if index.name else []
        fields += [f"hash: {quoted(hash_.name)}", f"partitions: {self._partitions(hash_)}"]
        if pattern.sort:
            (sort,), (condition,) = index.sort, pattern.sort
            directions = MOVED_UP.get(condition.operator, (None,))
            bounds = zip(condition.values, directions, strict=True)
            values = ", ".join(self._key(value, sort, up) for value, up in bounds)
            is_ = quoted(_OPERATORS[condition.operator])
            fields.append(f"sort: sortedBy({quoted(sort.name)}, {is_}, () => [{values}])")
        fields.append(f"order: {listed(attribute.name for attribute in index.sort)}")
        fields += ["descending: true"] if pattern.descending else []
        fields += [f"limit: {self._limit()}"] if pattern.limit is not None and pattern.near is None else []
        fields += ["consistent: true"] if pattern.consistent else []
        if pattern.filters:
            fields.append(f"filters: [{self._filters()}]")
        asked = "ask(question, pages(client, question))"
        return [
            "const question: Question = {",
            *block([f"{field}," for field in fields]),
            "};",
            *([f"const items = await {asked};"] if pattern.near is None else self._near(pattern.near, asked)),
        ]

    def _partitions(self, hash_: KeyAttribute) -> str:
        (template,) = self.pattern.key
        made = f"{{ {property_(hash_.name)}: {self._key(template, hash_)} }}"
        star = self.pattern.star
        elements, given = ('[""]', "") if star is None else (self._texts(star), "every")
        return f"keysOf({elements}, ({given}) => ({made}))"

    def _texts(self, star: Ref) -> str:
        """The texts that a `*` stands for."""
        (used,) = star.filters
        values = ", ".join(f"must({quoted(path)}, given({member('params', path)}))" for path in star.paths)
        if used.name == "shard":
            return f"shards({used.args[0]})"
        if used.name == "geohash":
            return f"cellsAround({values}, {used.args[0]})"
        return f"bucketsBetween({values}, {CHARACTERS[unit_of(used)]})"

    def _limit(self) -> str:
        limit = str(self.pattern.limit)
        return limit if limit.isdecimal() else f"limitOf({member('params', limit)})"

    def _near(self, near: Near, asked: str) -> list[str]:
        star = self.pattern.star
        assert star is not None, "checked with the mapping"
        origin = ", ".join(f"must({quoted(name)}, given({member('params', name)}))" for name in near.origin)
        within = near.within_m
        metres = (
            f"must({quoted(within)}, given({member('params', within)}))"
            if isinstance(within, str)
            else str(within)
        )
        found = (
            f"nearest(await {asked}, KEY, [{origin}], {listed(near.at)}, {metres}, {star.filters[0].args[0]})"
        )
        cut = f".slice(0, {self._limit()})" if self.pattern.limit is not None else ""
        return [f"const items = {found}{cut};"]

    def _filters(self) -> str:
        tests = []
        for condition in self.pattern.filters:
            values = ", ".join(self._value(value) for value in condition.values)
            is_ = quoted(_OPERATORS[condition.operator])
            tests.append(f"{{ name: {quoted(condition.attribute)}, is: {is_}, values: [{values}] }}")
        return ", ".join(tests)

    def _value(self, value: Expression) -> str:
        if isinstance(value, Const):
            return literal(value.value)
        if isinstance(value, Template):
            return text_expression(value, self._named, self.around)
        if isinstance(value, Ref) and not value.filters and not value.format:
            expression, kind, _ = self._named(value)
            return as_text(expression, kind) if kind.name == "timestamp" else f"given({expression})"
        if isinstance(value, Ref):
            return text_expression(Template((value,)), self._named, self.around)
        raise UnsayableError("a filter by a map or a list")

    def _keys(self) -> list[str]:
        """Of `get` and `batch_get`: the whole keys."""
        pattern = self.pattern
        templates = [*pattern.key, *(condition.values[0] for condition in pattern.sort)]
        names = [*self.asked.index.partition, *self.asked.index.sort]
        used = set(paths_in(templates))
        self.many = next((param.name for param in pattern.params if param.many and param.name in used), "")
        fields = ", ".join(
            f"{property_(name.name)}: {self._key(template, name)}"
            for name, template in zip(names, templates, strict=True)
        )
        elements, given = ('[""]', "") if not self.many else (member("params", self.many), "each")
        keys = f"keysOf({elements}, ({given}) => ({{ {fields} }}))"
        consistent = str(pattern.consistent).lower()
        return [f"const items = await askKeys({keys}, getter(client, {consistent}));"]

    def _key(self, template: Template, attribute: KeyAttribute, up: bool | None = None) -> str:
        return key_expression(template, attribute, self._named, self.around, up)

    def _named(self, ref: Ref) -> tuple[str, Kind, tuple[Filter, ...]]:
        if ref.every:
            return "every", TEXT, ()
        name = ref.paths[0]
        kind = Kind(self.params[name].type)
        value = "each" if name == self.many else member("params", name)
        if kind.name == "binary":
            raise UnsayableError(f"the parameter {name} of bytes")
        normal = {"date": f"bucket({value}, 10)", "uuid": f"lower({value})"}
        return normal.get(kind.name, value), kind, ref.filters

    # ── answers ──

    def _picked(self, title: str) -> Sequence[str]:
        parts = self.asked.parts
        if parts[0].part.name:
            fields = [f"{property_(part.part.name)}: {self._of_part(part, title)}," for part in parts]
            return ["return {", *block(fields), "};"]
        first = "[0]" if self.pattern.operation == "get" else ""
        return [f"return {self._of_part(parts[0], title)}{first};"]

    def _of_part(self, part: PartModel, title: str) -> str:
        names = listed(part.part.attributes)
        type_ = f", {quoted(part.part.type)}" if part.part.type else ""
        picked = f"picked<{_record_name(part, title)}>(items, {names}{type_})"
        return f"{picked}[0]" if part.part.one else picked
