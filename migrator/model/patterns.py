"""Access patterns and the requests made of them, as plain frozen values."""

from __future__ import annotations

from collections.abc import Mapping as Dict
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

from migrator.model.expressions import Expression, Ref, Template

# ── What an access pattern is, as plain frozen values ──

ParamType = Literal["integer", "number", "text", "boolean", "date", "timestamp", "uuid", "binary"]
Normaliser = Literal["lower", "upper", "trim", "unordered", "date"]
Operator = Literal["equal", "begins_with", "between", "ge", "gt", "le", "lt"]


@dataclass(frozen=True, slots=True)
class Param:
    """`many`: a list of values of the type."""

    name: str
    type: ParamType
    optional: bool = False
    many: bool = False


@dataclass(frozen=True, slots=True)
class SortCondition:
    operator: Operator
    values: tuple[Template, ...]


@dataclass(frozen=True, slots=True)
class FilterCondition:
    """A condition on an attribute that is no key; one of an unset parameter is left out."""

    attribute: str
    operator: Operator
    values: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Near:
    """Parameters of a place, attributes of an item's place (latitude first), and the distance in metres.

    `within_m` is a parameter's name or a number.
    """

    origin: tuple[str, str]
    at: tuple[str, str]
    within_m: str | Decimal


@dataclass(frozen=True, slots=True)
class Part:
    """Items of one type within an answer; `name` and `type` are '' where an answer is one plain list."""

    name: str
    type: str
    attributes: tuple[str, ...]
    one: bool = False


@dataclass(frozen=True, slots=True)
class CompareRules:
    """What makes two values of an attribute the same although they differ.

    `tolerance`: how far two numbers may be apart. `normalise`: what is done to both values before, step by step.
    """

    ignore: frozenset[str] = frozenset()
    tolerance: Dict[str, Decimal] = field(default_factory=dict)
    normalise: Dict[str, tuple[Normaliser, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pattern:
    """One access pattern: the request that answers it and, for each part, the SQL that answered it until now.

    `key` holds a template for each partition attribute, `sort` a condition for each sort attribute that is asked, in
    order; of `get` and `batch_get` both are the table's whole key, all equal. `limit` is a number or a parameter's
    name. `atomic`: those of one row are written together. `schema`: the parameter that names the schema SQL reads.
    `redact`: attributes and parameters whose values are never shown. `p99_ms`: what DynamoDB's answers may take; None
    where the mapping sets no budget.
    """

    name: str
    params: tuple[Param, ...]
    operation: Literal["query", "get", "batch_get"]
    key: tuple[Template, ...]
    sort: tuple[SortCondition, ...] = ()
    index: str | None = None
    descending: bool = False
    limit: str | None = None
    consistent: bool = False
    filters: tuple[FilterCondition, ...] = ()
    near: Near | None = None
    atomic: bool = False
    schema: str | None = None
    parts: tuple[Part, ...] = ()
    order: Literal["exact", "any"] = "exact"
    sql: Dict[str, str] = field(default_factory=dict)
    compare: CompareRules = CompareRules()
    redact: tuple[str, ...] = ()
    p99_ms: float | None = None

    @property
    def star(self) -> Ref | None:
        """What is written with a `*` in the partition key, and so asked many times."""
        return next((ref for template in self.key for ref in template.refs if ref.every), None)


@dataclass(frozen=True)
class Nearby:
    """A circle around a place in degrees, and the attributes that say where an item is; latitude first."""

    origin: tuple[float, float]
    at: tuple[str, str]
    within_m: float


@dataclass(frozen=True)
class Request:
    """What DynamoDB is asked, as plain data; `sent` may be empty where nothing can answer.

    `sent`: parameters of as many Query, GetItem or BatchGetItem calls, with plain Python values; the table's name is the
    store's to add. Items of several queries are merged by `sort` (names of attributes), each `key` (the table's) once.
    `limit` is how many items the answer has at most (None: all); it is counted by us, over pages and after filters.
    """

    operation: Literal["query", "get", "batch_get"]
    sent: tuple[dict[str, Any], ...]
    key: tuple[str, ...]
    sort: tuple[str, ...] = ()
    descending: bool = False
    limit: int | None = None
    near: Nearby | None = None
    type_attribute: str = ""
    """By what is told which items are ours alone (see TableDesign.is_hidden) and no part of the answer."""
    ttl_attribute: str | None = None
    """By what is told which items have expired: DynamoDB deletes them late, and they are no part of the answer either."""
