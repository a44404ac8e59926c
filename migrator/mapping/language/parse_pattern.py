"""Parser for the access patterns of a mapping file: keys, filters, returns, comparison."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, get_args

from msgspec import Struct

from migrator.mapping.items.filters import FILTERS
from migrator.mapping.language import forms as pattern_forms
from migrator.mapping.language.document import Path
from migrator.mapping.language.value_forms import FREQUENCY
from migrator.mapping.model.mapping import (
    CompareRules,
    Const,
    Expression,
    FilterCondition,
    Near,
    Operation,
    Operator,
    Param,
    ParamType,
    Part,
    Pattern,
    Ref,
    SortCondition,
    Statement,
    Template,
    paths_in,
)
from migrator.mapping.model.table import Index, KeyAttribute, TableDesign
from migrator.runtime.errors import amount, did_you_mean
from migrator.runtime.values import replace

if TYPE_CHECKING:
    from migrator.mapping.language.expression_reader import ExpressionReader


# ── Comparison and redaction rules of an access pattern, as model values ──


def rules_of(form: pattern_forms.CompareForm) -> CompareRules:
    """The rules as they are written."""
    return CompareRules(
        ignore=frozenset(form.ignore),
        tolerance={name: Decimal(str(value)) for name, value in form.tolerance.items()},
        normalise={
            name: (steps,) if isinstance(steps, str) else tuple(steps)
            for name, steps in form.normalise.items()
        },
    )


def rule_faults(
    reader: ExpressionReader, pattern: Pattern, form: pattern_forms.PatternForm, at: Path
) -> None:
    """Reports every name that the pattern does not return, and parts whose attributes are all ignored."""
    returned = {name for part in pattern.parts for name in part.attributes}
    for place, name in _named(form.compare):
        if name not in returned:
            reader.fault((*at, "compare", *place), _unknown(pattern, name, returned))
    names = returned | {param.name for param in pattern.params}
    for number, name in enumerate(form.redact):
        if name not in names:
            reader.fault((*at, "redact", number), _unknown(pattern, name, names))
    for part in pattern.parts:
        if set(part.attributes) <= pattern.compare.ignore:
            where = f"the part '{part.name}'" if part.name else "the answer"
            reader.fault((*at, "compare", "ignore"), f"leaves nothing of {where} to compare")


def _named(form: pattern_forms.CompareForm) -> Iterator[tuple[Path, str]]:
    """Each attribute that a rule names, with its place in `compare`."""
    yield from ((("ignore", number), name) for number, name in enumerate(form.ignore))
    yield from ((("tolerance", name), name) for name in form.tolerance)
    yield from ((("normalise", name), name) for name in form.normalise)


def _unknown(pattern: Pattern, name: str, names: set[str]) -> str:
    return f"{pattern.name} returns no '{name}'{did_you_mean(name, names)}"


# ── The key condition of an access pattern, as templates and conditions on the table or the index ──


class KeyCondition(Struct, frozen=True):
    """A template for each partition attribute, a condition for each sort attribute that is asked."""

    partition: tuple[Template, ...]
    sort: tuple[SortCondition, ...] = ()


class PatternKeyParser:
    """Parses the `key` of one request, which stands at `at`; faults go to the reader."""

    def __init__(self, reader: ExpressionReader, table: TableDesign, at: Path) -> None:
        self.reader = reader
        self.table = table
        self.at = at

    def key(self, form: pattern_forms.QueryForm | pattern_forms.GetForm) -> KeyCondition:
        return self._query(form) if isinstance(form, pattern_forms.QueryForm) else self._whole(form)

    def _whole(self, form: pattern_forms.GetForm) -> KeyCondition:
        """The whole key of the table, nothing but equalities."""
        at = (*self.at, "key")
        if len(form.key) != len(self.table.key):
            wanted = " and ".join(attribute.name for attribute in self.table.key)
            self.reader.fault(at, f"has {amount(len(form.key), 'part')}; the table's key is {wanted}")
        made = [self.reader.template(text, (*at, number)) for number, text in enumerate(form.key)]
        return KeyCondition(
            tuple(made[:1]), tuple(SortCondition("equal", (template,)) for template in made[1:])
        )

    def _query(self, form: pattern_forms.QueryForm) -> KeyCondition:
        made = KeyCondition(
            self._partition(form.key[0]), self._sort(form.key[1]) if len(form.key) > 1 else ()
        )
        key_index = self.table.asked(form.index)
        if key_index is None:
            index_names = [index.name for index in self.table.indexes]
            what = f"index '{form.index}' not found{did_you_mean(form.index or '', index_names)}"
            self.reader.fault((*self.at, "index"), what)
        else:
            self._check_parts(made, key_index)
        return made

    def _check_parts(self, made: KeyCondition, index: Index) -> None:
        at = (*self.at, "key")
        if len(made.partition) != len(index.partition):
            wanted = _listed(index.partition)
            what = (
                f"has {amount(len(made.partition), 'part')}; the partition key is {wanted}: give each of them"
            )
            self.reader.fault((*at, 0), what)
        if len(made.sort) > len(index.sort):
            what = f"has {amount(len(made.sort), 'condition')}; attributes of the sort key: {_listed(index.sort)}"
            self.reader.fault((*at, 1), what)

    def _partition(self, form: pattern_forms.PatternKeyForm) -> tuple[Template, ...]:
        at = (*self.at, "key", 0)
        texts = form if isinstance(form, list) else [form]
        made = []
        for number, text in enumerate(texts):
            place = (*at, number) if isinstance(form, list) else at
            if isinstance(text, str):
                made.append(self.reader.template(text, place, every=True))
            else:
                self.reader.fault(place, "a partition key takes one text, not a range")
                made.append(Template(()))
        if sum(ref.every for template in made for ref in template.refs) > 1:
            self.reader.fault(at, "has more than one *; use one at a time")
        return tuple(made)

    def _sort(self, form: pattern_forms.PatternKeyForm) -> tuple[SortCondition, ...]:
        at = (*self.at, "key", 1)
        given = form if isinstance(form, list) else [form]
        made = [
            self._condition(condition, (*at, number) if isinstance(form, list) else at)
            for number, condition in enumerate(given)
        ]
        if any(condition.operator != "equal" for condition in made[:-1]):
            self.reader.fault(
                at, "only the last condition on a sort key may be a range; earlier ones are texts"
            )
        return tuple(made)

    def _condition(self, form: pattern_forms.OneSortForm, at: Path) -> SortCondition:
        if isinstance(form, str):
            return SortCondition("equal", (self.reader.template(form, at),))
        operator, texts = only_condition(self.reader, form, at, "a sort key")
        return SortCondition(operator, tuple(self.reader.template(text, (*at, operator)) for text in texts))


def _listed(attributes: Sequence[KeyAttribute]) -> str:
    return ", ".join(attribute.name for attribute in attributes) or "none"


def only_condition(
    reader: ExpressionReader, form: pattern_forms.SortForm | pattern_forms.RangeForm, at: Path, of: str
) -> tuple[Operator, list[Any]]:
    """The operator of the single condition that a form holds, and its one or two values."""
    given: list[tuple[Any, Any]] = [(word, value) for word, value in form if value is not None]
    if len(given) != 1:
        words = ", ".join(type(form).model_fields)
        reader.fault(at, f"{of} takes exactly one condition (one of {words})")
        return "equal", [""]
    operator, value = given[0]
    return operator, value if isinstance(value, list) else [value]


# ── Access patterns of a mapping file as model values ──

OPERATIONS: tuple[Operation, ...] = get_args(Operation)
_PARAM_TYPES: tuple[str, ...] = get_args(ParamType)


class PatternParser:
    """Parses one access pattern; faults go to the reader."""

    def __init__(
        self, reader: ExpressionReader, table: TableDesign, name: str, at: Path | None = None
    ) -> None:
        self.reader = reader
        self.table = table
        self.name = name
        self.at: Path = at or ("access_patterns", name)

    def pattern(self, form: pattern_forms.PatternForm) -> Pattern:
        params = tuple(self._param(name, text) for name, text in form.params.items())
        asked = self.asked(params, *self._request(form))
        made = replace(
            asked,
            near=self._near(form.near, asked.key),
            atomic=form.atomic,
            schema=form.schema_,
            parts=self._parts(form.returns),
            order=form.order,
            statements=self._sql(form),
            compare=rules_of(form.compare),
            redact=tuple(form.redact),
            p99_ms=form.budget.p99_ms if form.budget else None,
            calls_per_s=_calls_per_s(form.frequency),
        )
        rule_faults(self.reader, made, form, self.at)
        self.check_params(made)
        self.check_lists(made)
        return made

    def asked(
        self,
        params: tuple[Param, ...],
        operation: Operation,
        request: pattern_forms.QueryForm | pattern_forms.GetForm,
    ) -> Pattern:
        """What the request alone says; check it with the two below."""
        query = request if isinstance(request, pattern_forms.QueryForm) else None
        key = PatternKeyParser(self.reader, self.table, (*self.at, operation)).key(request)
        return Pattern(
            name=self.name,
            params=params,
            operation=operation,
            key=key.partition,
            sort=key.sort,
            index=query.index if query else None,
            descending=bool(query and query.descending),
            limit=str(query.limit) if query and query.limit is not None else None,
            consistent=request.consistent,
            filters=self._filters(query),
        )

    def _request(
        self, form: pattern_forms.PatternForm
    ) -> tuple[Operation, pattern_forms.QueryForm | pattern_forms.GetForm]:
        given = [word for word in OPERATIONS if getattr(form, word) is not None]
        if len(given) == 1:
            return given[0], getattr(form, given[0])
        self.reader.fault(
            self.at, "needs one of query:, get: and batch_get:; a Scan is not an access pattern"
        )
        return "get", pattern_forms.GetForm(key=["?"] * len(self.table.key))

    def _param(self, name: str, text: str) -> Param:
        words = text.split()
        optional = words[:1] == ["optional"]
        words = words[1:] if optional else words
        many = words[:2] == ["list", "of"]
        type_ = " ".join(words[2:] if many else words)
        if type_ not in _PARAM_TYPES:
            what = f"'{type_}' is not a parameter type{did_you_mean(type_, _PARAM_TYPES)}"
            self.reader.fault((*self.at, "params", name), what)
        return Param(name, type_, optional, many)  # type: ignore[arg-type]

    # ── conditions on other attributes ──

    def _filters(self, query: pattern_forms.QueryForm | None) -> tuple[FilterCondition, ...]:
        if query is None:
            return ()
        at = (*self.at, "query", "filter")
        return tuple(self._filter(name, form, (*at, name)) for name, form in query.filter.items())

    def _filter(self, attribute: str, form: pattern_forms.FilterForm, at: Path) -> FilterCondition:
        operator: Operator = "equal"
        operands: list[pattern_forms.OperandForm] = []
        if isinstance(form, pattern_forms.RangeForm):
            operator, operands = only_condition(self.reader, form, at, "an attribute")
            at = (*at, operator)
        else:
            operands = [form]
        return FilterCondition(attribute, operator, tuple(self._operand(operand, at) for operand in operands))

    def _operand(self, form: pattern_forms.OperandForm, at: Path) -> Expression:
        if isinstance(form, str):
            return self.reader.value(form, at)
        value = form.const if isinstance(form, pattern_forms.PlainForm) else form
        if value is None or isinstance(value, (float, list, dict)):
            self.reader.fault(
                at, "a constant is a text, a whole number, true or false; give others as a parameter"
            )
            return Const("")
        return Const(value)

    def _near(self, form: pattern_forms.NearForm | None, key: Sequence[Template]) -> Near | None:
        if form is None:
            return None
        star = next((ref for template in key for ref in template.refs if ref.every), None)
        way = FILTERS[star.filters[0].name].way if star else None
        if star is None or way is None or way.of != "place":
            what = "near needs a query whose partition key has a geohash, such as {*lat,lng|geohash:6}"
            self.reader.fault((*self.at, "near"), what)
        elif star.paths != tuple(form.from_):
            what = f"near.from must name the parameters of the geohash: [{', '.join(star.paths)}]"
            self.reader.fault((*self.at, "near", "from"), what)
        within = form.within_m if isinstance(form.within_m, str) else Decimal(str(form.within_m))
        return Near((form.from_[0], form.from_[1]), (form.at[0], form.at[1]), within)

    # ── the answer ──

    def _parts(self, form: pattern_forms.ReturnsForm) -> tuple[Part, ...]:
        if isinstance(form, list):
            return (Part("", "", tuple(form)),)
        return tuple(Part(name, part.type, tuple(part.attributes), part.one) for name, part in form.items())

    def _sql(self, form: pattern_forms.PatternForm) -> dict[str, Statement]:
        """By part of the answer; where `old` says what old tables are asked, another parser reads that."""
        if (form.sql is None) == (form.old is None):
            what = "needs either sql: (a query of the database) or old: (a query of old DynamoDB tables)"
            self.reader.fault(self.at, what)
        if form.sql is None:
            return {}
        sql: dict[str, Statement] = {"": form.sql} if isinstance(form.sql, str) else dict(form.sql)
        parts = {""} if isinstance(form.returns, list) else set(form.returns)
        for name in sorted(parts ^ set(sql)):
            what = f"the part '{name}' is in only one of returns and sql; write it in both"
            self.reader.fault((*self.at, "sql"), what)
        return sql

    # ── parameters ──

    def check_params(self, pattern: Pattern) -> None:
        param_names = [param.name for param in pattern.params]
        for name in sorted(_names(pattern) - set(param_names)):
            what = f"parameter '{name}' not found{did_you_mean(name, param_names)}"
            self.reader.fault(self.at, what)
        for condition in pattern.filters:
            for ref in (value for value in condition.values if isinstance(value, Ref)):
                for name in sorted(set(ref.paths) - set(param_names)):
                    what = f"parameter '{name}' not found{did_you_mean(name, param_names)}"
                    at = (*self.at, "query", "filter", condition.attribute)
                    self.reader.fault(at, f"{what}; a constant is written {{const: {name}}}")
        types = {param.name: param.type for param in pattern.params}
        if pattern.schema is not None and types.get(pattern.schema, "text") != "text":
            self.reader.fault((*self.at, "schema"), f"the parameter '{pattern.schema}' must be a text")

    def check_lists(self, pattern: Pattern) -> None:
        lists = [param.name for param in pattern.params if param.many]
        used = [name for name in lists if name in _names(pattern) | _filtering(pattern)]
        if pattern.operation == "batch_get" and len(used) != 1:
            what = "the key of batch_get takes exactly one list, such as product_ids: list of integer"
            self.reader.fault((*self.at, "batch_get", "key"), what)
        elif pattern.operation != "batch_get" and used:
            what = f"'{used[0]}' is a list; only the key of batch_get takes one"
            self.reader.fault((*self.at, pattern.operation), what)


_SECONDS = {"s": 1, "min": 60, "h": 3_600, "day": 86_400}


def _calls_per_s(frequency: str | None) -> float | None:
    match = re.fullmatch(FREQUENCY, frequency or "")
    return None if match is None else float(match[1]) / _SECONDS[match[2]]


def _names(pattern: Pattern) -> set[str]:
    """Parameters that the pattern names, except those that stand alone as a value of its filter."""
    filtering = [
        value for comparison in pattern.filters for value in comparison.values if isinstance(value, Template)
    ]
    names = set(paths_in([*pattern.templates, *filtering]))
    if pattern.near is not None:
        names |= set(pattern.near.origin)
        names |= {pattern.near.within_m} if isinstance(pattern.near.within_m, str) else set()
    if pattern.limit is not None and not pattern.limit.isdecimal():
        names.add(pattern.limit)
    return names | ({pattern.schema} if pattern.schema else set())


def _filtering(pattern: Pattern) -> set[str]:
    return set(
        paths_in(
            value for comparison in pattern.filters for value in comparison.values if isinstance(value, Ref)
        )
    )
