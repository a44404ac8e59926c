"""Values that a service gives, as the column's type would hold them: around each placeholder the SQL that makes it so."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, TypeAlias

from migrator.facts import Column
from migrator.source.capture.mysql import declared_word

Typed: TypeAlias = tuple[str, Any, str]
"""SQL before the placeholder, the value for it, SQL behind it."""

_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "year")
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")


def typed(dialect: str, column: Column, value: Any) -> Typed:
    if dialect == "postgresql":
        # A domain over an enum as the enum: no operator compares the domain.
        enum = column.kind.read_as if column.kind.name == "text" else ""
        return "CAST(", value, f" AS {enum or column.declared})"
    return _mysql(column, value) if dialect == "mysql" else ("", _sqlite(column, value), "")


def _mysql(column: Column, value: Any) -> Typed:
    word, declared = declared_word(column), column.declared.lower()
    sized = "".join(re.findall(r"\([\d, ]+\)", declared)[:1])
    casts = {
        **dict.fromkeys(_INTEGERS, "UNSIGNED" if "unsigned" in declared else "SIGNED"),
        **dict.fromkeys(_BYTES, "BINARY"),
        "decimal": f"DECIMAL{sized}",
        "date": "DATE",
        "time": f"TIME{sized}",
        "datetime": f"DATETIME{sized}",
        "timestamp": f"DATETIME{sized}",
    }
    if word == "float":
        return "(CAST(", value, " AS FLOAT) + 0e0)"
    if word == "double":
        return "(", value, " + 0e0)"
    if word == "bit":
        return "(", value, " + 0)"
    return "CAST(", value, f" AS {casts.get(word, 'CHAR CHARACTER SET utf8mb4')})"


def _sqlite(column: Column, value: Any) -> Any:
    """By the column's affinity. Source: SQLite, "Datatypes In SQLite", 3.1 and 3."""
    declared = column.declared.upper()
    if isinstance(value, bool):
        value = int(value)
    if "INT" in declared:
        return _integer(value)
    if any(word in declared for word in ("CHAR", "CLOB", "TEXT")):
        return value if isinstance(value, (str, bytes)) or value is None else str(value)
    if "BLOB" in declared or not declared:
        return value
    if any(word in declared for word in ("REAL", "FLOA", "DOUB")):
        return float(value) if isinstance(value, (int, Decimal)) else value
    return _integer(float(value) if isinstance(value, Decimal) else value)


def _integer(value: Any) -> Any:
    """A number without decimals as an integer, and text that is one."""
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d+\s*", value):
        return int(value)
    if isinstance(value, Decimal):
        value = float(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value
