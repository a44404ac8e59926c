"""Access patterns of a mapping file as model values."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Literal, get_args

from migrator.mapping import schema as forms
from migrator.mapping.document import Path, did_you_mean
from migrator.mapping.parse_compare import rule_faults, rules_of
from migrator.mapping.parse_pattern_key import AskedKey, PatternKeyParser, only_condition
from migrator.model import (
    Const,
    Expression,
    FilterCondition,
    Near,
    Operator,
    Param,
    ParamType,
    Part,
    Pattern,
    Ref,
    TableDesign,
    Template,
)

if TYPE_CHECKING:
    from migrator.mapping.parse import ExpressionReader

Operation = Literal["query", "get", "batch_get"]
_OPERATIONS: tuple[Operation, ...] = get_args(Operation)
_PARAM_TYPES: tuple[str, ...] = get_args(ParamType)


class PatternParser:
    """Parses one access pattern; faults go to the reader."""

    def __init__(self, reader: ExpressionReader, table: TableDesign, name: str) -> None:
        self.reader = reader
        self.table = table
        self.name = name
        self.at: Path = ("access_patterns", name)

    def pattern(self, form: forms.PatternForm) -> Pattern:
        params = tuple(self._param(name, text) for name, text in form.params.items())
        operation, request = self._request(form)
        query = request if isinstance(request, forms.QueryForm) else None
        key = PatternKeyParser(self.reader, self.table, (*self.at, operation)).key(request)
        made = Pattern(
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
            near=self._near(form.near, key),
            atomic=form.atomic,
            schema=form.schema_,
            parts=self._parts(form.returns),
            order=form.order,
            sql=self._sql(form),
            compare=rules_of(form.compare),
            redact=tuple(form.redact),
            p99_ms=form.budget.p99_ms if form.budget else None,
        )
        rule_faults(self.reader, made, form, self.at)
        self._check_params(made)
        self._check_lists(made)
        return made

    def _request(self, form: forms.PatternForm) -> tuple[Operation, forms.QueryForm | forms.GetForm]:
        given = [word for word in _OPERATIONS if getattr(form, word) is not None]
        if len(given) == 1:
            return given[0], getattr(form, given[0])
        self.reader.fault(self.at, "needs one of query:, get: and batch_get:; a Scan is no access pattern")
        return "get", forms.GetForm(key=["?"] * len(self.table.key))

    def _param(self, name: str, text: str) -> Param:
        words = text.split()
        optional = words[:1] == ["optional"]
        words = words[1:] if optional else words
        many = words[:2] == ["list", "of"]
        type_ = " ".join(words[2:] if many else words)
        if type_ not in _PARAM_TYPES:
            what = f"'{type_}' is no type of a parameter{did_you_mean(type_, _PARAM_TYPES)}"
            self.reader.fault((*self.at, "params", name), what)
        return Param(name, type_, optional, many)  # type: ignore[arg-type]

    # ── conditions on other attributes ──

    def _filters(self, query: forms.QueryForm | None) -> tuple[FilterCondition, ...]:
        if query is None:
            return ()
        at = (*self.at, "query", "filter")
        return tuple(self._filter(name, form, (*at, name)) for name, form in query.filter.items())

    def _filter(self, attribute: str, form: forms.FilterForm, at: Path) -> FilterCondition:
        operator: Operator = "equal"
        operands: list[forms.OperandForm] = []
        if isinstance(form, forms.RangeForm):
            operator, operands = only_condition(self.reader, form, at, "an attribute")
            at = (*at, operator)
        else:
            operands = [form]
        return FilterCondition(attribute, operator, tuple(self._operand(one, at) for one in operands))

    def _operand(self, form: forms.OperandForm, at: Path) -> Expression:
        if isinstance(form, str):
            return self.reader.value(form, at)
        value = form.const if isinstance(form, forms.PlainForm) else form
        if value is None or isinstance(value, (float, list, dict)):
            self.reader.fault(
                at, "a constant is a text, a whole number, true or false; give others as a parameter"
            )
            return Const("")
        return Const(value)

    def _near(self, form: forms.NearForm | None, key: AskedKey) -> Near | None:
        if form is None:
            return None
        star = next((ref for template in key.partition for ref in template.refs if ref.every), None)
        if star is None or star.filters[0].name != "geohash":
            what = "near needs a query whose partition key has a geohash, such as {*lat,lng|geohash:6}"
            self.reader.fault((*self.at, "near"), what)
        elif star.paths != tuple(form.from_):
            what = f"near.from must name the parameters of the geohash: [{', '.join(star.paths)}]"
            self.reader.fault((*self.at, "near", "from"), what)
        within = form.within_m if isinstance(form.within_m, str) else Decimal(str(form.within_m))
        return Near((form.from_[0], form.from_[1]), (form.at[0], form.at[1]), within)

    # ── the answer ──

    def _parts(self, form: forms.ReturnsForm) -> tuple[Part, ...]:
        if isinstance(form, list):
            return (Part("", "", tuple(form)),)
        return tuple(Part(name, part.type, tuple(part.attributes), part.one) for name, part in form.items())

    def _sql(self, form: forms.PatternForm) -> dict[str, str]:
        sql = {"": form.sql} if isinstance(form.sql, str) else dict(form.sql)
        parts = {""} if isinstance(form.returns, list) else set(form.returns)
        for name in sorted(parts ^ set(sql)):
            what = f"the part '{name}' stands in only one of returns and sql; write it in both"
            self.reader.fault((*self.at, "sql"), what)
        return sql

    # ── parameters ──

    def _check_params(self, pattern: Pattern) -> None:
        known = [param.name for param in pattern.params]
        for name in sorted(_names(pattern) - set(known)):
            what = f"there is no parameter '{name}'{did_you_mean(name, known)}"
            self.reader.fault(self.at, what)
        for condition in pattern.filters:
            for ref in (value for value in condition.values if isinstance(value, Ref)):
                for name in sorted(set(ref.paths) - set(known)):
                    what = f"there is no parameter '{name}'{did_you_mean(name, known)}"
                    at = (*self.at, "query", "filter", condition.attribute)
                    self.reader.fault(at, f"{what}; a constant is written {{const: {name}}}")
        types = {param.name: param.type for param in pattern.params}
        if pattern.schema is not None and types.get(pattern.schema, "text") != "text":
            self.reader.fault((*self.at, "schema"), f"the parameter '{pattern.schema}' must be a text")

    def _check_lists(self, pattern: Pattern) -> None:
        lists = [param.name for param in pattern.params if param.many]
        used = [name for name in lists if name in _names(pattern) | _filtering(pattern)]
        if pattern.operation == "batch_get" and len(used) != 1:
            what = "the key of batch_get takes exactly one list, such as product_ids: list of integer"
            self.reader.fault((*self.at, "batch_get", "key"), what)
        elif pattern.operation != "batch_get" and used:
            what = f"'{used[0]}' is a list; only the key of batch_get takes one"
            self.reader.fault((*self.at, pattern.operation), what)


def _names(pattern: Pattern) -> set[str]:
    """Parameters that the pattern names, those of its filter's plain values apart."""
    conditions = [template for one in pattern.sort for template in one.values]
    filtering = [value for one in pattern.filters for value in one.values if isinstance(value, Template)]
    templates = [*pattern.key, *conditions, *filtering]
    names = {path for template in templates for ref in template.refs for path in ref.paths}
    if pattern.near is not None:
        names |= set(pattern.near.origin)
        names |= {pattern.near.within_m} if isinstance(pattern.near.within_m, str) else set()
    if pattern.limit is not None and not pattern.limit.isdecimal():
        names.add(pattern.limit)
    return names | ({pattern.schema} if pattern.schema else set())


def _filtering(pattern: Pattern) -> set[str]:
    values = [value for one in pattern.filters for value in one.values if isinstance(value, Ref)]
    return {path for ref in values for path in ref.paths}
