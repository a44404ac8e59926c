"""The form of a mapping file: which words stand where. What they mean together is parse.py's and check.py's."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

Scalar = str | int | float | bool | None
Name = Annotated[str, Field(min_length=1, max_length=255)]


class Form(BaseModel):
    """A map whose words are all known."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, strict=True)


def _choice(**members: str) -> Discriminator:
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


# ── table ───────────────────────────────────────────────────────────────────────────────────────


class TypedKeyForm(Form):
    name: Name
    type: Literal["text", "number", "binary"] = "text"


KeyAttributeForm = Annotated[
    Annotated[Name, Tag("=text")] | Annotated[TypedKeyForm, Tag("=typed")],
    _choice(text="=text", other="=typed"),
]
IndexKeyForm = Annotated[
    Annotated[Name, Tag("=text")]
    | Annotated[TypedKeyForm, Tag("=typed")]
    | Annotated[list[KeyAttributeForm], Tag("=list"), Field(min_length=1, max_length=4)],
    _choice(text="=text", other="=typed", list="=list"),
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


ValueForm = Annotated[
    Annotated[Name, Tag("=text")]
    | Annotated[ConstForm, Tag("=const")]
    | Annotated[MapForm, Tag("=map")]
    | Annotated[EachForm, Tag("=each")],
    _choice(text="=text", const="=const", map="=map", each="=each"),
]
AllowedForm = Scalar | list[Scalar]
ConditionForm = Annotated[
    Annotated[Name, Tag("=text")]
    | Annotated[list[Name], Tag("=list"), Field(min_length=1)]
    | Annotated[dict[Name, AllowedForm], Tag("=map"), Field(min_length=1)],
    _choice(text="=text", list="=list", other="=map"),
]


# ── entities ────────────────────────────────────────────────────────────────────────────────────


class OnForm(Form):
    table: Name
    on: dict[Name, Name] = Field(min_length=1)


JoinForm = Annotated[
    Annotated[Name, Tag("=text")]
    | Annotated[list[Name], Tag("=list"), Field(min_length=1)]
    | Annotated[OnForm, Tag("=on")],
    _choice(text="=text", list="=list", other="=on"),
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


class PairForm(Form):
    key: list[Name] = Field(min_length=1, max_length=8)
    when: ConditionForm | None = None


EntryForm = Annotated[
    Annotated[list[Name], Tag("=list"), Field(min_length=1, max_length=8)]
    | Annotated[PairForm, Tag("=pair")],
    _choice(list="=list", other="=pair"),
]


class ExceptForm(Form):
    except_: list[Name] = Field(alias="except")


KeepForm = Annotated[
    Annotated[Literal["all"], Tag("=text")]
    | Annotated[list[Name], Tag("=list")]
    | Annotated[ExceptForm, Tag("=except")],
    _choice(text="=text", list="=list", other="=except"),
]


class ExpiryForm(Form):
    from_: Name = Field(alias="from")
    days: Annotated[int, Field(ge=0, le=36_500)] = 0


TtlForm = Annotated[
    Annotated[Name, Tag("=text")] | Annotated[ExpiryForm, Tag("=from")], _choice(text="=text", other="=from")
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
    where: ConditionForm | None = None
    join: dict[Name, JoinForm] = {}
    collect: dict[Name, CollectForm] = {}
    attributes: dict[Name, ValueForm] = {}
    items: dict[Name, ItemForm] = Field(min_length=1)


# ── access patterns ─────────────────────────────────────────────────────────────────────────────


class SortForm(Form):
    begins_with: str | None = None
    between: Annotated[list[str], Field(min_length=2, max_length=2)] | None = None
    ge: str | None = None
    gt: str | None = None
    le: str | None = None
    lt: str | None = None


PatternKeyForm = Annotated[
    Annotated[str, Tag("=text")] | Annotated[SortForm, Tag("=sort")], _choice(text="=text", other="=sort")
]


class QueryForm(Form):
    key: list[PatternKeyForm] = Field(min_length=1, max_length=2)
    index: Name | None = None
    descending: bool = False
    limit: int | Name | None = None


class GetForm(Form):
    key: list[str] = Field(min_length=1, max_length=2)


class PartForm(Form):
    type: Name
    one: bool = False
    attributes: list[Name] = Field(min_length=1)


ReturnsForm = Annotated[
    Annotated[list[Name], Tag("=list")] | Annotated[dict[Name, PartForm], Tag("=parts")],
    _choice(list="=list", other="=parts"),
]
SqlForm = Annotated[
    Annotated[str, Tag("=text")] | Annotated[dict[Name, str], Tag("=parts")],
    _choice(text="=text", other="=parts"),
]


class BudgetForm(Form):
    p99_ms: Annotated[float, Field(gt=0)]


class PatternForm(Form):
    params: dict[Name, str] = {}
    query: QueryForm | None = None
    get: GetForm | None = None
    returns: ReturnsForm
    order: Literal["exact", "any"] = "exact"
    frequency: str | None = None
    budget: BudgetForm | None = None
    sql: SqlForm


class SourceForm(Form):
    names: Literal["exact", "snake_case"] = "exact"
    timezone: str | None = None


class MappingForm(Form):
    mapping: Literal[1]
    source: SourceForm = SourceForm()
    table: TableForm
    maps: dict[Name, dict[str, Scalar]] = {}
    entities: dict[Name, EntityForm] = Field(min_length=1)
    access_patterns: dict[Name, PatternForm] = {}


def known_words() -> dict[str, list[str]]:
    """The words that each form knows, by the form's name; for did-you-mean."""
    forms = [form for form in globals().values() if isinstance(form, type) and issubclass(form, Form)]
    return {
        form.__name__: [field.alias or name for name, field in form.model_fields.items()]
        for form in forms
        if form.model_fields
    }


MapForm.model_rebuild()
EachForm.model_rebuild()
EntityForm.model_rebuild()
MappingForm.model_rebuild()
