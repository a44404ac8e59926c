"""What a column holds, by the type that the source declares for it."""

from __future__ import annotations

import re

from migrator.facts import Kind, KindName

_SHARED: dict[KindName, tuple[str, ...]] = {
    "integer": (
        "INT",
        "INTEGER",
        "SMALLINT",
        "BIGINT",
        "INT2",
        "INT4",
        "INT8",
        "SERIAL",
        "BIGSERIAL",
        "SMALLSERIAL",
    ),
    "number": ("NUMERIC", "DECIMAL", "DEC"),
    "float": ("REAL", "FLOAT", "DOUBLE", "DOUBLE PRECISION", "FLOAT4", "FLOAT8"),
    "text": ("TEXT", "VARCHAR", "CHAR", "CHARACTER", "CHARACTER VARYING", "BPCHAR", "CITEXT", "NAME"),
    "boolean": ("BOOLEAN", "BOOL"),
    "date": ("DATE",),
    "time": ("TIME", "TIME WITHOUT TIME ZONE", "TIME WITH TIME ZONE", "TIMETZ"),
    "timestamp": ("TIMESTAMP", "TIMESTAMP WITHOUT TIME ZONE", "TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ"),
    "uuid": ("UUID",),
    "binary": ("BYTEA", "BLOB"),
    "json": ("JSON", "JSONB"),
}
_SQLITE: dict[KindName, tuple[str, ...]] = {
    "integer": (
        "TINYINT",
        "MEDIUMINT",
        "UNSIGNED BIG INT",
        "INT UNSIGNED",
        "INTEGER UNSIGNED",
        "BIGINT UNSIGNED",
    ),
    "text": (
        "NVARCHAR",
        "NCHAR",
        "NTEXT",
        "CLOB",
        "VARYING CHARACTER",
        "NATIVE CHARACTER",
        "VARCHAR2",
        "NVARCHAR2",
    ),
    "timestamp": ("DATETIME", "DATETIME2", "DATETIMEOFFSET"),
    "uuid": ("GUID", "UNIQUEIDENTIFIER"),
    "binary": ("BINARY", "VARBINARY"),
}
_MYSQL: dict[KindName, tuple[str, ...]] = {
    "integer": ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "YEAR", "BIT"),
    "number": ("DECIMAL",),
    "float": ("FLOAT", "DOUBLE"),
    "text": (
        "CHAR",
        "VARCHAR",
        "TINYTEXT",
        "TEXT",
        "MEDIUMTEXT",
        "LONGTEXT",
        "ENUM",
        "SET",
        "INET4",
        "INET6",
    ),
    "boolean": ("TINYINT(1)", "BIT(1)"),  # BOOLEAN is written as the first of them
    "date": ("DATE",),
    "time": ("TIME",),
    "timestamp": ("DATETIME", "TIMESTAMP"),
    "uuid": ("UUID",),
    "binary": ("BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"),
    "json": ("JSON",),
}
_WITH_ZONE = frozenset(
    {"TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ", "DATETIMEOFFSET", "TIME WITH TIME ZONE", "TIMETZ"}
)
_ZONED = {"postgresql": _WITH_ZONE, "sqlite": _WITH_ZONE, "mysql": frozenset({"TIMESTAMP"})}


def _by_type_name(*tables: dict[KindName, tuple[str, ...]]) -> dict[str, KindName]:
    return {type_name: kind for table in tables for kind, names in table.items() for type_name in names}


KIND_NAMES = {
    "postgresql": _by_type_name(_SHARED),
    "sqlite": _by_type_name(_SHARED, _SQLITE),
    "mysql": _by_type_name(_MYSQL),
}
"""Per dialect, the kind that each type name means; a name that is not here has no rule yet."""

_ARGUMENTS = re.compile(r"\(\s*(\d+)\s*(?:,\s*(-?\d+)\s*)?\)")
# As MySQL writes them: int(10) unsigned zerofill, enum('a','b(1)').
_SIGNS = re.compile(r"(?: unsigned| zerofill)+$")
_MEMBERS = re.compile(r"^(enum|set)\(.*\)$", re.DOTALL)


def kind_of(declared: str, dialect: str) -> Kind:
    """The kind of a declared type such as `NUMERIC(10, 2)`; `unknown` where there is no rule for it yet."""
    names = KIND_NAMES[dialect]
    bare = _MEMBERS.sub(r"\1", _SIGNS.sub("", declared))
    arguments = _ARGUMENTS.search(bare)
    type_name = " ".join(_ARGUMENTS.sub(" ", bare, count=1).upper().split())
    # tinyint(1), but not tinyint(1) unsigned, is a boolean.
    name = names.get(declared.upper()) or names.get(type_name, "unknown")
    first, second = arguments.groups() if arguments else (None, None)
    if name == "number":
        return Kind(name, scale=None if second is None else int(second))
    if name == "text":
        return Kind(name, length=None if first is None else int(first))
    return Kind(name, zone=type_name in _ZONED[dialect])
