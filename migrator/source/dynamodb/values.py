"""Values of documents, by their column's path and declared type, as rows of other sources have them; keys made of them."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from migrator.mapping.items.values import Undecodable, json_text
from migrator.mapping.items.wire import decode, number_text
from migrator.mapping.language.documents import TYPE_NAMES, held_as, key_type
from migrator.mapping.model.edges import WiredItem
from migrator.mapping.model.facts import Column, TableFacts
from migrator.mapping.model.table import SourceKey, decode_key
from migrator.runtime.errors import UnfitValueError

Wire = Mapping[str, Any]
"""One value in DynamoDB's form: {"S": …}."""


def value_of(item: WiredItem, column: Column) -> Any:
    """The column's value as a row tree has it: a text, an int or a Decimal, a boolean, bytes, a list, a dict; sets are
    sorted lists. None where the attribute, or a map on the way to it, is missing or NULL.

    What is of another type than declared becomes an Undecodable: items cannot be made of the row, which is refused then.
    """
    found = _at(item, column.real)
    if found is None or isinstance(found, Undecodable):
        return found
    (type_,) = found
    if type_ == "NULL":
        return None
    if type_ not in held_as(column.declared):
        what = f"the document has {TYPE_NAMES[type_]} there, and it is declared {column.declared}"
        return Undecodable(None, f"{what}; correct the document, or declare it 'any'")
    value = decode(found)  # type: ignore[arg-type]
    # The decoder of JSON parses a text, as SQL sources give one.
    return json_text(value) if column.declared == "json" and isinstance(value, str) else value


def _at(item: WiredItem, path: str) -> Wire | Undecodable | None:
    """What stands at the path: an attribute of that name goes before a place in maps."""
    if path in item or "." not in path:
        return item.get(path)
    level, names, here = item, path.split("."), ""
    for name in names[:-1]:
        here = f"{here}.{name}" if here else name
        found = level.get(name)
        if found is None or "NULL" in found:
            return None
        if "M" not in found:
            (type_,) = found
            return Undecodable(
                None, f"the document has {TYPE_NAMES[type_]} at '{here}', and no map to look into"
            )
        level = found["M"]
    return level.get(names[-1])


# ── keys ──


def wire_value(value: Any, type_: str) -> Wire | None:
    """A value in DynamoDB's form, as a key attribute of that type (S, N or B) has it; None where it can be no such one."""
    if type_ == "S" and isinstance(value, str):
        return {"S": value}
    if type_ == "B" and isinstance(value, (bytes, bytearray, memoryview)):
        return {"B": bytes(value)}
    if type_ == "N" and isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        # Without an exponent, as DynamoDB answers numbers: a server that compares texts finds the key also.
        return {"N": format(Decimal(number_text(value)), "f")}
    return None


def wired_key(table: TableFacts, values: Mapping[str, Any]) -> WiredItem | None:
    """The table's key of values by its attributes' names; None where one is missing, or can be no key."""
    wired = {name: wire_value(values.get(name), key_type_of(table, name)) for name in table.primary_key}
    return None if None in wired.values() else wired


def key_of_text(table: TableFacts, key: SourceKey) -> WiredItem:
    """The key that a source key names. Raises: UnfitValueError where it can be none of this table."""
    values = dict(zip(table.primary_key, decode_key(key), strict=False))
    wired = wired_key(
        table, {name: _number_of(value, key_type_of(table, name)) for name, value in values.items()}
    )
    if wired is None or len(decode_key(key)) != len(table.primary_key):
        raise UnfitValueError(f"table {table.name}: the key does not fit its key attributes and their types")
    return wired


def key_type_of(table: TableFacts, name: str) -> str:
    column = table.column(name)
    return key_type(column.declared) if column else ""


def _number_of(value: Any, type_: str) -> Any:
    """A source key has a number that is not whole as text."""
    return Decimal(value) if type_ == "N" and isinstance(value, str) and _is_number(value) else value


def _is_number(text: str) -> bool:
    try:
        return Decimal(text).is_finite()
    except ArithmeticError:
        return False
