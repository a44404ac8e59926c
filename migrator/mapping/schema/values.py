"""The forms of a table and of values in a mapping file, and what all forms share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, Tag

from migrator.mapping.schema.base import Form, Name, Scalar, choice

COLUMN_TYPE = r"^(integer|number(\((0|[1-9]\d?)\))?|float|text|boolean|date|time|timestamp( with zone)?|uuid|binary|json)$"
"""Types of computed columns: number(2) is an exact number with two decimals."""


# ── table ───────────────────────────────────────────────────────────────────────────────────────


class TypedKeyForm(Form):
    name: Name
    type: Literal["text", "number", "binary"] = "text"


KeyAttributeForm = Annotated[
    Annotated[Name, Tag("=text")] | Annotated[TypedKeyForm, Tag("=typed")],
    choice(text="=text", other="=typed"),
]
IndexKeyForm = Annotated[
    Annotated[Name, Tag("=text")]
    | Annotated[TypedKeyForm, Tag("=typed")]
    | Annotated[list[KeyAttributeForm], Tag("=list"), Field(min_length=1, max_length=4)],
    choice(text="=text", other="=typed", list="=list"),
]


class IndexForm(Form):
    key: list[IndexKeyForm] = Field(min_length=1, max_length=2)
    project: Literal["all", "keys"] | list[Name] = "all"
    local: bool = False


class OwnForm(Form):
    source: Name = "_src"
    ticket: Name = "_tk"
    revision: Name = "_rev"


class TableForm(Form):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{3,255}$")]
    key: list[KeyAttributeForm] = Field(min_length=1, max_length=2)
    type: Name
    ttl: Name | None = None
    separator: Annotated[str, Field(min_length=1, max_length=8)] = "#"
    indexes: dict[Name, IndexForm] = {}
    own: OwnForm = OwnForm()


# ── values ──────────────────────────────────────────────────────────────────────────────────────


class ConstForm(Form):
    const: Any


class MapForm(Form):
    map: dict[Name, ValueForm]


class EachForm(Form):
    each: Name
    attributes: dict[Name, ValueForm] = Field(min_length=1)


class StoredForm(Form):
    """A value kept in S3 when it takes more than `over` bytes."""

    from_: ValueForm = Field(alias="from")
    to: Literal["s3"]
    over: Annotated[int, Field(ge=0, le=400_000)] = 0


ValueForm = Annotated[
    Annotated[Name, Tag("=text")]
    | Annotated[ConstForm, Tag("=const")]
    | Annotated[MapForm, Tag("=map")]
    | Annotated[EachForm, Tag("=each")]
    | Annotated[StoredForm, Tag("=stored")],
    choice(text="=text", const="=const", map="=map", each="=each", to="=stored"),
]
AllowedForm = Scalar | list[Scalar]
ConditionForm = Annotated[
    Annotated[Name, Tag("=text")]
    | Annotated[list[Name], Tag("=list"), Field(min_length=1)]
    | Annotated[dict[Name, AllowedForm], Tag("=map"), Field(min_length=1)],
    choice(text="=text", list="=list", other="=map"),
]


MapForm.model_rebuild()
EachForm.model_rebuild()
StoredForm.model_rebuild()
