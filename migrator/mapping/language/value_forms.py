"""Forms of values, tables and indexes in a mapping file, and the base of all forms."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Union, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, GetCoreSchemaHandler, Tag
from pydantic_core import CoreSchema

from migrator.mapping.model.table import KeyType, Projection

# ── The basis of all forms of a mapping file: maps of known words, and the choice between shapes ──

Scalar = str | int | float | bool | None
Name = Annotated[str, Field(min_length=1, max_length=255)]
Names = Annotated[list[Name], Field(min_length=1)]


def written_as(pattern: str) -> Any:
    """The JSON Schema of such a text."""
    return Field(json_schema_extra={"pattern": f"^({pattern})$"})


def like(pattern: str, advice: str) -> AfterValidator:
    """Accepts text that the whole pattern matches; other text is a fault with the advice as its message."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(advice)
        return text

    return AfterValidator(check)


class Form(BaseModel):
    """A map whose words are all known."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, strict=True, defer_build=True
    )


class ByShape:
    """Chooses a member of a union by the YAML shape. `words`, one for each member: `text`, `list`, `scalar`, words of
    which a map has one, or `other`, which is any other map."""

    def __init__(self, *words: str) -> None:
        self.tags = {word: f"={member}" for member in words for word in member.split()}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        members = zip(get_args(source), dict.fromkeys(self.tags.values()), strict=True)
        tagged = tuple(Annotated[member, Tag(tag)] for member, tag in members)
        told = f"write {_listed(sorted(self.tags))} here"
        chosen = Discriminator(self.tag, custom_error_type="shape", custom_error_message=told)
        return handler.generate_schema(Annotated[Union[tagged], chosen])  # noqa: UP007

    def tag(self, value: Any) -> str | None:
        if isinstance(value, str):
            return self.tags.get("text")
        if isinstance(value, list):
            return self.tags.get("list")
        if isinstance(value, dict):
            return next((self.tags[word] for word in value if word in self.tags), self.tags.get("other"))
        return self.tags.get("scalar")


def _listed(members: list[str]) -> str:
    shown = {"text": "a text", "list": "a list", "other": "a map", "scalar": "a plain value"}
    return " or ".join(shown.get(member, f"{{{member}: …}}") for member in members)


# ── The forms of a table and of values in a mapping file, and what all forms share ──

FREQUENCY = r"([0-9]{1,12}(?:\.[0-9]{1,6})?)/(s|min|h|day)"
FREQUENCY_ADVICE = "write how often callers use it: 12.5/s, 300/min, 40/h or 5/day"
_TYPE = r"integer|number(\((0|[1-9]\d?)\))?|text|boolean|date|time|timestamp( with zone)?|uuid|binary|json"
_TYPES = "text, integer, number, number(2), boolean, date, time, timestamp, timestamp with zone, uuid, binary, json"
_COLUMN_TYPE = f"{_TYPE}|float"
_DOCUMENT_TYPE = rf"{_TYPE}|list|map|set\((text|number|binary)\)|any"
_TRANSFORM = r"[A-Za-z_][\w.]*:[A-Za-z_]\w*"
TABLE_NAME = r"[A-Za-z0-9_.-]{3,255}"
TableName = Annotated[
    str, like(TABLE_NAME, "a table's name has 3 to 255 letters, digits, _, . or -"), written_as(TABLE_NAME)
]
Frequency = Annotated[str, like(FREQUENCY, FREQUENCY_ADVICE), written_as(FREQUENCY)]
"""How often callers use a pattern."""
ColumnType = Annotated[str, like(_COLUMN_TYPE, f"write a type: {_TYPES}, float"), written_as(_COLUMN_TYPE)]
"""number(2) is an exact number with two decimals."""
DocumentType = Annotated[
    str,
    like(_DOCUMENT_TYPE, f"write a type: {_TYPES}, list, map, set(text), set(number), set(binary), any"),
    written_as(_DOCUMENT_TYPE),
]
"""The type of a column of an old DynamoDB table; mapping/language/documents.py has the stored types."""
Transform = Annotated[
    str, like(_TRANSFORM, "write module:function, such as shop.rows:with_total"), written_as(_TRANSFORM)
]


# ── table ───────────────────────────────────────────────────────────────────────────────────────


class TypedKeyForm(Form):
    name: Name
    type: KeyType = "text"


KeyAttributeForm = Annotated[Name | TypedKeyForm, ByShape("text", "other")]
IndexKeyForm = Annotated[
    Name | TypedKeyForm | Annotated[list[KeyAttributeForm], Field(min_length=1, max_length=4)],
    ByShape("text", "other", "list"),
]


class IndexForm(Form):
    key: list[IndexKeyForm] = Field(min_length=1, max_length=2)
    project: Projection | list[Name] = "all"
    local: bool = False


IndexKeysForm = Annotated[list[IndexKeyForm], Field(min_length=1, max_length=2)]
AnyIndexForm = Annotated[IndexForm | IndexKeysForm, ByShape("other", "list")]
"""A list is an index with that key."""


class OwnForm(Form):
    source: Name = "_src"
    ticket: Name = "_tk"
    revision: Name = "_rev"


class TableForm(Form):
    name: TableName
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
    key: Name | None = None
    attributes: dict[Name, ValueForm] = Field(min_length=1)


class StoredForm(Form):
    """A value kept in S3 when it takes more than `over` bytes."""

    from_: ValueForm = Field(alias="from")
    to: Literal["s3"]
    over: Annotated[int, Field(ge=0, le=400_000)] = 0


ValueForm = Annotated[
    Name | ConstForm | MapForm | EachForm | StoredForm, ByShape("text", "const", "map", "each", "to")
]
AllowedForm = Scalar | list[Scalar]
ConditionForm = Annotated[
    Name | Names | Annotated[dict[Name, AllowedForm], Field(min_length=1)], ByShape("text", "list", "other")
]


MapForm.model_rebuild()
EachForm.model_rebuild()
StoredForm.model_rebuild()
