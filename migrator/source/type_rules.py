"""What a rule for column types says: one row of the tables that the code and docs/types.md are made from."""

from __future__ import annotations

from dataclasses import dataclass

from migrator.facts import Kind


@dataclass(frozen=True)
class TypeRule:
    """`names`: types in the database's words, upper case. `form`: DynamoDB's type, and the format in words.

    `rule`: what happens to a value, in whole sentences. `example`: (an SQL literal, the item's value as JSON would
    write it), both '' for a type that is refused. `no_key`: why a column of it cannot name rows, '' where it can.
    """

    names: tuple[str, ...]
    kind: Kind
    form: str
    rule: str
    example: tuple[str, str] = ("", "")
    no_key: str = ""


NO_ORDER = "PostgreSQL has no order for its values"
DOCUMENT = "MySQL compares a document with a text as two different things"
NESTED = "a key takes one value"

REFUSED = "none"
"""The form of a type that `check` refuses."""

OVER_38 = "NaN, infinity and more than 38 digits refuse their row, unless the mapping says `|text`."
FLOATS = (
    "NaN, infinity and what is outside of DynamoDB's range refuse their row, unless the mapping says `|text`."
)
MOMENTS = "Infinity, BC and years after 9999 refuse their row, unless the mapping says `|text`."
