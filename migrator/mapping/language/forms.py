"""The form of a mapping file, as pydantic models: which words are allowed where."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, Tag

from migrator.mapping.language.pattern_forms import (
    PatternForm,
)
from migrator.mapping.language.value_forms import (
    COLUMN_TYPE,
    ConditionForm,
    Form,
    Name,
    Scalar,
    TableForm,
    ValueForm,
    choice,
)

# ──
# The form of a mapping file: which words stand where. What they mean together is parse.py's and
# check.py's.

# ── entities ────────────────────────────────────────────────────────────────────────────────────


class OnForm(Form):
    table: Name
    on: dict[Name, Name] = Field(min_length=1)


JoinForm = Annotated[
    Annotated[Name, Tag("=text")]
    | Annotated[list[Name], Tag("=list"), Field(min_length=1)]
    | Annotated[OnForm, Tag("=on")],
    choice(text="=text", list="=list", other="=on"),
]


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
    type: Annotated[str, Field(pattern=COLUMN_TYPE)]


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
    transform: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")] | None = None
    version: VersionForm | None = None
    attributes: dict[Name, ValueForm] = {}
    items: dict[Name, ItemForm] = Field(min_length=1)


class SourceForm(Form):
    names: Literal["exact", "snake_case"] = "exact"
    timezone: str | None = None
    schemas: list[Name] = []


class MappingForm(Form):
    mapping: Literal[1]
    source: SourceForm = SourceForm()
    table: TableForm
    maps: dict[Name, dict[str, Scalar]] = {}
    entities: dict[Name, EntityForm] = Field(min_length=1)
    access_patterns: dict[Name, PatternForm] = {}


def mapping_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of mapping files."""
    schema = MappingForm.model_json_schema(by_alias=True)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "migrator mapping"}
    return {**head, **{word: value for word, value in schema.items() if word != "title"}}


def known_words() -> dict[str, list[str]]:
    """The words that each form knows, by the form's name; for did-you-mean."""
    forms = Form.__subclasses__()
    return {
        form.__name__: [field.alias or name for name, field in form.model_fields.items()]
        for form in forms
        if form.model_fields
    }
