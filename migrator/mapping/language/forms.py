"""The form of a mapping file, as pydantic models: which words are allowed where."""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import ConfigDict, Field

from migrator.mapping.language.value_forms import (
    ByShape,
    ColumnType,
    ConditionForm,
    DocumentType,
    Form,
    Frequency,
    Name,
    Names,
    Scalar,
    TableForm,
    TableName,
    Transform,
    ValueForm,
)
from migrator.mapping.model.mapping import Normaliser, Order

# ── Joins, of entities and of questions to old tables ──


class OnForm(Form):
    table: Name
    on: dict[Name, Name] = Field(min_length=1)


JoinForm = Annotated[Name | Names | OnForm, ByShape("text", "list", "other")]


# ── Access patterns ──


Operand = TypeVar("Operand")


class ComparisonForm(Form, Generic[Operand]):
    """One condition; `between` takes two."""

    begins_with: Operand | None = None
    between: Annotated[list[Operand], Field(min_length=2, max_length=2)] | None = None
    ge: Operand | None = None
    gt: Operand | None = None
    le: Operand | None = None
    lt: Operand | None = None


class SortForm(ComparisonForm[str]):
    """One condition on a sort key; `between` takes two."""


OneSortForm = Annotated[str | SortForm, ByShape("text", "other")]
PatternKeyForm = Annotated[
    str | Annotated[list[OneSortForm], Field(min_length=1, max_length=4)] | SortForm,
    ByShape("text", "list", "other"),
]


class PlainForm(Form):
    const: Any


PlainValue = Annotated[int | bool, Field()]
OperandForm = Annotated[Name | PlainForm | PlainValue, ByShape("text", "const", "scalar")]


class RangeForm(ComparisonForm[OperandForm]):
    """One condition on an attribute; `between` takes two."""

    exists: bool | None = None


FilterForm = Annotated[Name | PlainForm | PlainValue | RangeForm, ByShape("text", "const", "scalar", "other")]


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


ReturnsForm = Annotated[list[Name] | dict[Name, PartForm], ByShape("list", "other")]


class OldForm(Form):
    """One request to an old table, and the columns that it gives."""

    query: OldQueryForm | None = None
    get: OldGetForm | None = None
    batch_get: OldBatchGetForm | None = None
    join: dict[Name, JoinForm] = {}
    returns: list[Name] | None = Field(default=None, min_length=1)


SqlForm = Annotated[str | dict[Name, str], ByShape("text", "other")]
OldsForm = Annotated[OldForm | dict[Name, OldForm], ByShape("query get batch_get join returns", "other")]


class CompareForm(Form):
    """Differences that a comparison of two values ignores."""

    ignore: list[Name] = []
    tolerance: dict[Name, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = {}
    normalise: dict[
        Name,
        Annotated[Normaliser | Annotated[list[Normaliser], Field(min_length=1)], ByShape("text", "list")],
    ] = {}


class BudgetForm(Form):
    p99_ms: Annotated[float, Field(gt=0)]


class PatternForm(Form):
    """`sql` or `old`, one of the two: the statement of the old side."""

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


# ── The form of a mapping file: the words at each place; parse.py and check.py define their meaning ──

# ── entities ────────────────────────────────────────────────────────────────────────────────────


class CollectForm(Form):
    of: Name
    by: Name | list[Name] = []
    join: dict[Name, JoinForm] = {}
    order_by: list[Name] = []
    at_most: Annotated[int, Field(ge=1)] | None = None
    first: Annotated[int, Field(ge=1)] | None = None
    count: Literal["all"] | None = None
    sum: Name | None = None
    min: Name | None = None
    max: Name | None = None


ClimbForm = Annotated[
    Name | Names | Annotated[dict[Name, Name], Field(min_length=1)], ByShape("text", "list", "other")
]


class ColumnForm(Form):
    sql: Name
    type: ColumnType


ComputedForm = Annotated[Annotated[str, Field(min_length=1)] | ColumnForm, ByShape("text", "other")]


class PairForm(Form):
    key: list[Name] = Field(min_length=1, max_length=8)
    when: ConditionForm | None = None


EntryForm = Annotated[
    Annotated[list[Name], Field(min_length=1, max_length=8)] | PairForm, ByShape("list", "other")
]


class ExceptForm(Form):
    except_: list[Name] = Field(alias="except")


KeepForm = Annotated[Literal["all"] | list[Name] | ExceptForm, ByShape("text", "list", "other")]


class ExpiryForm(Form):
    from_: Name = Field(alias="from")
    days: Annotated[int, Field(ge=0, le=36_500)] = 0
    unit: Literal["seconds", "milliseconds"] = "seconds"
    zero: Literal["never", "expired"] | None = None


TtlForm = Annotated[Name | ExpiryForm, ByShape("text", "other")]


class VersionAsForm(Form):
    attribute: Name
    from_: Name = Field(alias="from")


VersionForm = Annotated[Name | VersionAsForm, ByShape("text", "other")]


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
    single: bool = False
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
    forms = Form.__subclasses__()
    return {
        form.__name__: [field.alias or name for name, field in form.model_fields.items()]
        for form in forms
        if form.model_fields
    }
