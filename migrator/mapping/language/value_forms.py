"""Forms of values, tables and indexes in a mapping file, and the base of all forms."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from migrator.mapping.model.table import KeyType, Projection

# ── What all forms of a mapping file are made of: maps of known words, and the choice between shapes ──

Scalar = str | int | float | bool | None
Name = Annotated[str, Field(min_length=1, max_length=255)]


class Form(BaseModel):
    """A map whose words are all known."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, strict=True)


def choice(**members: str) -> Discriminator:
    """Chooses a member of a union by the YAML shape: text, list, or a map by one of its words ('map' is any map)."""

    def shape(value: Any) -> str | None:
        if isinstance(value, str):
            return members.get("text")
        if isinstance(value, list):
            return members.get("list")
        if isinstance(value, dict):
            return next((members[word] for word in value if word in members), members.get("other"))
        return members.get("scalar")

    return Discriminator(
        shape, custom_error_type="shape", custom_error_message=f"write {_listed(sorted(members))} here"
    )


def _listed(members: list[str]) -> str:
    shown = {"text": "a text", "list": "a list", "other": "a map", "scalar": "a plain value"}
    return " or ".join(shown.get(member, f"{{{member}: …}}") for member in members)


# ── The forms of a table and of values in a mapping file, and what all forms share ──

FREQUENCY = r"^([0-9]{1,12}(?:\.[0-9]{1,6})?)/(s|min|h|day)$"
"""How often a pattern is asked: calls, and the time in which they are."""
COLUMN_TYPE = r"^(integer|number(\((0|[1-9]\d?)\))?|float|text|boolean|date|time|timestamp( with zone)?|uuid|binary|json)$"
"""Types of computed columns: number(2) is an exact number with two decimals."""
DOCUMENT_TYPE = (
    r"^(integer|number(\((0|[1-9]\d?)\))?|text|boolean|date|time|timestamp( with zone)?|uuid|binary|json"
    r"|list|map|set\((text|number|binary)\)|any)$"
)
"""Types of columns of an old DynamoDB table: what stands under which of its types, see mapping/language/documents.py."""


# ── table ───────────────────────────────────────────────────────────────────────────────────────


class TypedKeyForm(Form):
    name: Name
    type: KeyType = "text"


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
    project: Projection | list[Name] = "all"
    local: bool = False


IndexKeysForm = Annotated[list[IndexKeyForm], Field(min_length=1, max_length=2)]
AnyIndexForm = Annotated[
    Annotated[IndexForm, Tag("=index")] | Annotated[IndexKeysForm, Tag("=list")],
    choice(other="=index", list="=list"),
]
"""A list is an index with that key."""


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
    indexes: dict[Name, AnyIndexForm] = {}
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
