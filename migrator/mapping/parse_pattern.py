"""Access patterns of a mapping file as model values."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from migrator.mapping import schema
from migrator.mapping.document import Path, did_you_mean
from migrator.model import Param, ParamType, Part, Pattern, SortCondition, TableDesign, Template

if TYPE_CHECKING:
    from migrator.mapping.parse import ExpressionReader

_PARAM_TYPES: tuple[str, ...] = get_args(ParamType)


class PatternParser:
    """Parses one access pattern; faults go to the reader."""

    def __init__(self, reader: ExpressionReader, table: TableDesign, name: str) -> None:
        self.reader = reader
        self.table = table
        self.name = name
        self.at: Path = ("access_patterns", name)

    def pattern(self, form: schema.PatternForm) -> Pattern:
        params = tuple(self._param(name, text) for name, text in form.params.items())
        request, word = (form.query, "query") if form.query else (form.get, "get")
        if (form.query is None) == (form.get is None):
            self.reader.fault(self.at, "needs either query: or get:; a Scan is no access pattern")
            request = schema.GetForm(key=["?"])
        assert request is not None
        query = request if isinstance(request, schema.QueryForm) else None
        key, sort = self._key(request, (*self.at, word, "key"))
        self._check_index(query)
        self._check_params(params, [*key, *(sort.values if sort else ())])
        return Pattern(
            name=self.name,
            params=params,
            operation="query" if query else "get",
            key=key,
            sort=sort,
            index=query.index if query else None,
            descending=bool(query and query.descending),
            limit=str(query.limit) if query and query.limit is not None else None,
            parts=self._parts(form.returns),
            order=form.order,
            sql=self._sql(form),
        )

    def _param(self, name: str, text: str) -> Param:
        words = text.split()
        optional = words[:1] == ["optional"]
        type_ = " ".join(words[1:] if optional else words)
        if type_ not in _PARAM_TYPES:
            what = f"'{type_}' is no type of a parameter{did_you_mean(type_, _PARAM_TYPES)}"
            self.reader.fault((*self.at, "params", name), what)
        return Param(name, type_, optional)  # type: ignore[arg-type]

    def _key(
        self, form: schema.QueryForm | schema.GetForm, at: Path
    ) -> tuple[tuple[Template, ...], SortCondition | None]:
        first = form.key[0]
        if not isinstance(first, str):
            self.reader.fault((*at, 0), "a partition key is asked for by one text, never by a range")
            return (Template(()),), None
        partition = self.reader.template(first, (*at, 0))
        if len(form.key) == 1:
            return (partition,), None
        return (partition,), self._sort(form.key[1], (*at, 1))

    def _sort(self, form: schema.PatternKeyForm, at: Path) -> SortCondition:
        if isinstance(form, str):
            return SortCondition("equal", (self.reader.template(form, at),))
        given = [(word, value) for word, value in form if value is not None]
        if len(given) != 1:
            self.reader.fault(
                at, "a sort key takes exactly one condition (one of begins_with, between, ge, gt, le, lt)"
            )
            return SortCondition("equal", (Template(()),))
        operator, value = given[0]
        texts = [value] if isinstance(value, str) else value
        return SortCondition(operator, tuple(self.reader.template(text, (*at, operator)) for text in texts))  # type: ignore[arg-type]

    def _parts(self, form: schema.ReturnsForm) -> tuple[Part, ...]:
        if isinstance(form, list):
            return (Part("", "", tuple(form)),)
        return tuple(Part(name, part.type, tuple(part.attributes), part.one) for name, part in form.items())

    def _sql(self, form: schema.PatternForm) -> dict[str, str]:
        sql = {"": form.sql} if isinstance(form.sql, str) else dict(form.sql)
        parts = {""} if isinstance(form.returns, list) else set(form.returns)
        for name in sorted(parts ^ set(sql)):
            what = f"the part '{name}' stands in only one of returns and sql; write it in both"
            self.reader.fault((*self.at, "sql"), what)
        return sql

    def _check_index(self, query: schema.QueryForm | None) -> None:
        names = [index.name for index in self.table.indexes]
        if query and query.index and query.index not in names:
            what = f"there is no index '{query.index}'{did_you_mean(query.index, names)}"
            self.reader.fault((*self.at, "query", "index"), what)

    def _check_params(self, params: tuple[Param, ...], templates: list[Template]) -> None:
        known = [param.name for param in params]
        used = {path for template in templates for ref in template.refs for path in ref.paths}
        for name in sorted(used - set(known)):
            what = f"there is no parameter '{name}'{did_you_mean(name, known)}"
            self.reader.fault(self.at, what)
