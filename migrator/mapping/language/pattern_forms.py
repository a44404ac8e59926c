"""The form of access patterns in a mapping file: which words are allowed where."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, Tag

from migrator.mapping.language.value_forms import Form, Name, choice


class SortForm(Form):
    """One condition on a sort key; `between` takes two."""

    begins_with: str | None = None
    between: Annotated[list[str], Field(min_length=2, max_length=2)] | None = None
    ge: str | None = None
    gt: str | None = None
    le: str | None = None
    lt: str | None = None


OneSortForm = Annotated[
    Annotated[str, Tag("=text")] | Annotated[SortForm, Tag("=sort")], choice(text="=text", other="=sort")
]
PatternKeyForm = Annotated[
    Annotated[str, Tag("=text")]
    | Annotated[list[OneSortForm], Tag("=list"), Field(min_length=1, max_length=4)]
    | Annotated[SortForm, Tag("=sort")],
    choice(text="=text", list="=list", other="=sort"),
]


class PlainForm(Form):
    const: Any


OperandForm = Annotated[
    Annotated[Name, Tag("=text")]
    | Annotated[PlainForm, Tag("=const")]
    | Annotated[int | bool, Tag("=plain")],
    choice(text="=text", const="=const", scalar="=plain"),
]


class RangeForm(Form):
    """One condition on an attribute; `between` takes two."""

    begins_with: OperandForm | None = None
    between: Annotated[list[OperandForm], Field(min_length=2, max_length=2)] | None = None
    ge: OperandForm | None = None
    gt: OperandForm | None = None
    le: OperandForm | None = None
    lt: OperandForm | None = None


FilterForm = Annotated[
    Annotated[Name, Tag("=text")]
    | Annotated[PlainForm, Tag("=const")]
    | Annotated[int | bool, Tag("=plain")]
    | Annotated[RangeForm, Tag("=range")],
    choice(text="=text", const="=const", scalar="=plain", other="=range"),
]


class QueryForm(Form):
    key: list[PatternKeyForm] = Field(min_length=1, max_length=2)
    index: Name | None = None
    descending: bool = False
    limit: Annotated[int, Field(ge=1)] | Name | None = None
    consistent: bool = False
    filter: dict[Name, FilterForm] = {}


class GetForm(Form):
    key: list[str] = Field(min_length=1, max_length=2)
    consistent: bool = False


class BatchGetForm(GetForm):
    """As get, with a list among its parameters."""


class NearForm(Form):
    from_: list[Name] = Field(alias="from", min_length=2, max_length=2)
    at: list[Name] = Field(min_length=2, max_length=2)
    within_m: Name | Annotated[float, Field(gt=0)]


class PartForm(Form):
    type: Name
    one: bool = False
    attributes: list[Name] = Field(min_length=1)


ReturnsForm = Annotated[
    Annotated[list[Name], Tag("=list")] | Annotated[dict[Name, PartForm], Tag("=parts")],
    choice(list="=list", other="=parts"),
]
SqlForm = Annotated[
    Annotated[str, Tag("=text")] | Annotated[dict[Name, str], Tag("=parts")],
    choice(text="=text", other="=parts"),
]


NormaliserForm = Literal["lower", "upper", "trim", "unordered", "date"]


class CompareForm(Form):
    """What makes two values the same although they differ."""

    ignore: list[Name] = []
    tolerance: dict[Name, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = {}
    normalise: dict[
        Name,
        Annotated[
            Annotated[NormaliserForm, Tag("=text")]
            | Annotated[list[NormaliserForm], Tag("=list"), Field(min_length=1)],
            choice(text="=text", list="=list"),
        ],
    ] = {}


class BudgetForm(Form):
    p99_ms: Annotated[float, Field(gt=0)]


class PatternForm(Form):
    params: dict[Name, str] = {}
    query: QueryForm | None = None
    get: GetForm | None = None
    batch_get: BatchGetForm | None = None
    near: NearForm | None = None
    returns: ReturnsForm
    order: Literal["exact", "any"] = "exact"
    compare: CompareForm = CompareForm()
    redact: list[Name] = []
    atomic: bool = False
    schema_: Name | None = Field(default=None, alias="schema")
    budget: BudgetForm | None = None
    sql: SqlForm
