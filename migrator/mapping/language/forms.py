"""The form of a mapping file, as pydantic models: which words are allowed where."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, Tag

from migrator.mapping.language.value_forms import (
    ColumnType,
    ConditionForm,
    DocumentType,
    Form,
    Frequency,
    Name,
    Scalar,
    TableForm,
    TableName,
    Transform,
    ValueForm,
    choice,
)
from migrator.mapping.model.mapping import Normaliser, Order

# ── Joins, of entities and of questions to old tables ──


class OnForm(Form):
    table: Name
    on: dict[Name, Name] = Field(min_length=1)


JoinForm = Annotated[
    Annotated[Name, Tag("=text")]
    | Annotated[list[Name], Tag("=list"), Field(min_length=1)]
    | Annotated[OnForm, Tag("=on")],
    choice(text="=text", list="=list", other="=on"),
]


# ── Access patterns ──


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


class OldQueryForm(Form):
    """A Query of an old table, or of an index of it."""

    table: Name
    key: dict[Name, OneSortForm] = Field(min_length=1, max_length=2)
    index: Name | None = None
    descending: bool = False
    limit: Annotated[int, Field(ge=1)] | Name | None = None
    consistent: bool = False
    filter: dict[Name, FilterForm] = {}


class OldGetForm(Form):
    table: Name
    key: dict[Name, str] = Field(min_length=1, max_length=2)
    consistent: bool = False


class OldBatchGetForm(OldGetForm):
    """As get, with a list among the pattern's parameters."""


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


class OldForm(Form):
    """One request to an old table, and the columns that it gives."""

    query: OldQueryForm | None = None
    get: OldGetForm | None = None
    batch_get: OldBatchGetForm | None = None
    join: dict[Name, JoinForm] = {}
    returns: list[Name] | None = Field(default=None, min_length=1)


SqlForm = Annotated[
    Annotated[str, Tag("=text")] | Annotated[dict[Name, str], Tag("=parts")],
    choice(text="=text", other="=parts"),
]
OldsForm = Annotated[
    Annotated[OldForm, Tag("=one")] | Annotated[dict[Name, OldForm], Tag("=parts")],
    choice(query="=one", get="=one", batch_get="=one", join="=one", returns="=one", other="=parts"),
]


class CompareForm(Form):
    """What makes two values the same although they differ."""

    ignore: list[Name] = []
    tolerance: dict[Name, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = {}
    normalise: dict[
        Name,
        Annotated[
            Annotated[Normaliser, Tag("=text")]
            | Annotated[list[Normaliser], Tag("=list"), Field(min_length=1)],
            choice(text="=text", list="=list"),
        ],
    ] = {}


class BudgetForm(Form):
    p99_ms: Annotated[float, Field(gt=0)]


class PatternForm(Form):
    """`sql` or `old`, one of the two: what the old side is asked."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["sql"]}, {"required": ["old"]}]})

    params: dict[Name, str] = {}
    query: QueryForm | None = None
    get: GetForm | None = None
    batch_get: BatchGetForm | None = None
    near: NearForm | None = None
    returns: ReturnsForm
    order: Order = "exact"
    compare: CompareForm = CompareForm()
    redact: list[Name] = []
    atomic: bool = False
    schema_: Name | None = Field(default=None, alias="schema")
    budget: BudgetForm | None = None
    frequency: Frequency | None = None
    sql: SqlForm | None = None
    old: OldsForm | None = None


# ── The form of a mapping file: which words stand where; parse.py and check.py say what they mean together ──

# ── entities ────────────────────────────────────────────────────────────────────────────────────


class CollectForm(Form):
    of: Name
    by: Name | list[Name]
    join: dict[Name, JoinForm] = {}
    order_by: list[Name] = []
    at_most: Annotated[int, Field(ge=1)] | None = None
    first: Annotated[int, Field(ge=1)] | None = None
    count: Literal["all"] | None = None
    sum: Name | None = None
    min: Name | None = None
    max: Name | None = None


ClimbForm = Annotated[
    Annotated[Name, Tag("=text")]
    | Annotated[list[Name], Tag("=list"), Field(min_length=1)]
    | Annotated[dict[Name, Name], Tag("=map"), Field(min_length=1)],
    choice(text="=text", list="=list", other="=map"),
]


class ColumnForm(Form):
    sql: Name
    type: ColumnType


ComputedForm = Annotated[
    Annotated[str, Tag("=text"), Field(min_length=1)] | Annotated[ColumnForm, Tag("=column")],
    choice(text="=text", other="=column"),
]


class PairForm(Form):
    key: list[Name] = Field(min_length=1, max_length=8)
    when: ConditionForm | None = None


EntryForm = Annotated[
    Annotated[list[Name], Tag("=list"), Field(min_length=1, max_length=8)]
    | Annotated[PairForm, Tag("=pair")],
    choice(list="=list", other="=pair"),
]


class ExceptForm(Form):
    except_: list[Name] = Field(alias="except")


KeepForm = Annotated[
    Annotated[Literal["all"], Tag("=text")]
    | Annotated[list[Name], Tag("=list")]
    | Annotated[ExceptForm, Tag("=except")],
    choice(text="=text", list="=list", other="=except"),
]


class ExpiryForm(Form):
    from_: Name = Field(alias="from")
    days: Annotated[int, Field(ge=0, le=36_500)] = 0
    unit: Literal["seconds", "milliseconds"] = "seconds"
    zero: Literal["never", "expired"] | None = None


TtlForm = Annotated[
    Annotated[Name, Tag("=text")] | Annotated[ExpiryForm, Tag("=from")], choice(text="=text", other="=from")
]


class VersionAsForm(Form):
    attribute: Name
    from_: Name = Field(alias="from")


VersionForm = Annotated[
    Annotated[Name, Tag("=text")] | Annotated[VersionAsForm, Tag("=from")],
    choice(text="=text", other="=from"),
]


class ItemForm(Form):
    """Words of an item; every other word must be the name of an index."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, EntryForm]

    key: list[Name] = Field(min_length=1, max_length=2)
    when: ConditionForm | None = None
    keep: KeepForm | None = None
    attributes: dict[Name, ValueForm] = {}
    ttl: TtlForm | None = None


class EntityForm(Form):
    table: Name | None = None
    key: list[Name] = []
    columns: dict[Name, ComputedForm] = {}
    where: ConditionForm | None = None
    changes: dict[Name, Name | list[Name]] = {}
    join: dict[Name, JoinForm] = {}
    collect: dict[Name, CollectForm] = {}
    climb: dict[Name, ClimbForm] = {}
    transform: Transform | None = None
    version: VersionForm | None = None
    attributes: dict[Name, ValueForm] = {}
    items: dict[Name, ItemForm] = Field(min_length=1)


class DocumentTableForm(Form):
    key: list[Name] = Field(min_length=1, max_length=2)
    columns: dict[Name, DocumentType] = Field(min_length=1)


class SourceForm(Form):
    timezone: str | None = None
    schemas: list[Name] = []
    tables: dict[TableName, DocumentTableForm] = {}


class MappingForm(Form):
    mapping: Literal[1]
    source: SourceForm = SourceForm()
    table: TableForm
    maps: dict[Name, dict[str, Scalar]] = {}
    entities: dict[Name, EntityForm] = Field(min_length=1)
    access_patterns: dict[Name, PatternForm] = {}


def known_words() -> dict[str, list[str]]:
    """The words that each form knows, by the form's name; for did-you-mean."""
    forms = Form.__subclasses__()
    return {
        form.__name__: [field.alias or name for name, field in form.model_fields.items()]
        for form in forms
        if form.model_fields
    }
