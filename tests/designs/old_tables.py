"""A design of the articles whose old side is tables of DynamoDB instead of a database: its mapping, its documents."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

from migrator.mapping.language.document import plain_of
from migrator.mapping.language.documents import facts_of, key_type
from migrator.mapping.model.facts import Column, TableFacts
from migrator.settings.job import DocumentSettings, SourceSettings
from migrator.settings.transforms import read_mapping
from tests.designs.golden import script_of
from tests.designs.moved import Moved, moved_from
from tests.support_design import source_with
from tests.support_documents import declared, old_tables
from tools.pages.golden import DESIGNS, Golden

Documents = Mapping[str, list[dict[str, Any]]]
Indexes = Mapping[str, Mapping[str, Mapping[str, str]]]
"""By table and name, the key attributes with their types."""
_NONE: Indexes = {}

COMPUTED = {
    "customer_bookmark": {"created": "created_at", "updated": "updated_at"},
    "iot_events": {"moment": "occurred_at"},
}
"""By design, the attributes that stand for columns that SQL computes: documents have the form already."""
ZONED = {("iot_events", "occurred_at")}
"""Moments that applications write with their zone."""
WHOLE_KEY = "key"
"""Of a table with more key columns than DynamoDB has: one attribute of all of them, as applications write it."""
_MOST_PARTS = 2


@contextmanager
def moved_tables(
    mapping: Path, documents: Documents, endpoint: str, golden: Golden, indexes: Indexes = _NONE
) -> Iterator[Moved]:
    """The documents in old tables of their own, moved as the mapping says."""
    mark = secrets.token_hex(3)
    declared_tables = facts_of(read_mapping(mapping).mapping).tables
    real = {name: f"{mark}-{name}" for name in declared_tables}
    with old_tables(endpoint) as old:
        for name, table in declared_tables.items():
            old.make(real[name], _key_of(table), documents[name], indexes=indexes.get(name), projection="ALL")
        source = SourceSettings(dynamodb=DocumentSettings(tables=real, endpoint=endpoint))
        with moved_from(source, mapping, endpoint, golden) as design:
            yield design


def _key_of(table: TableFacts) -> dict[str, str]:
    columns = {column.real: column for column in table.columns}
    return {name: key_type(columns[name].declared) for name in table.primary_key}


def on_old_tables(name: str, folder: Path) -> tuple[Path, Documents]:
    """The design's mapping over old tables like those of its SQL, without what SQL was asked; and its rows as documents."""
    with source_with(folder, script_of(name, "sqlite")) as source:
        tables = {table.real: table for table in source.facts().tables.values()}
    written = plain_of((DESIGNS / f"{name}.yaml").read_text(encoding="utf-8"))
    read = {entity["table"] for entity in written["entities"].values()}
    joins = [join for entity in written["entities"].values() for join in entity.get("join", {}).values()]
    read |= {key.table for table in tables.values() for key in table.foreign_keys if key.columns[0] in joins}
    read |= {of["of"] for entity in written["entities"].values() for of in entity.get("collect", {}).values()}
    chosen = {real: tables[real] for real in sorted(read)}
    written.pop("access_patterns", None)
    source_words = written.setdefault("source", {})
    source_words.setdefault("timezone", "UTC")
    source_words["tables"] = {real: _declaration(name, table) for real, table in chosen.items()}
    for entity in written["entities"].values():
        _rewrite(name, entity, tables[entity["table"]])
        for of in entity.get("collect", {}).values():
            _name_parents(of, tables[of["of"]])
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(written), encoding="utf-8")
    return path, _documents(name, chosen)


def _declaration(design: str, table: TableFacts) -> dict[str, Any]:
    columns = {column.real: _type(column) for column in table.columns}
    columns |= {column: "timestamp with zone" for column in columns if (design, column) in ZONED}
    if len(table.primary_key) <= _MOST_PARTS:
        return {"key": list(table.primary_key), "columns": columns}
    return {"key": [WHOLE_KEY], "columns": {WHOLE_KEY: "text"} | columns}


def _type(column: Column) -> str:
    scale = column.kind.scale
    exact = f"number({scale})" if column.kind.name == "number" and scale is not None else ""
    return exact or next(one.declared for one in declared(TableFacts("", "", (column,))).columns)


def _rewrite(design: str, entity: dict[str, Any], table: TableFacts) -> None:
    """Parents are named by their tables and keys, as nothing declares foreign keys; attributes stand for SQL."""
    _name_parents(entity, table)
    if entity.pop("columns", None):
        text = json.dumps(entity["items"])
        for computed, attribute in COMPUTED[design].items():
            text = text.replace(f"{computed}|", f"{attribute}|")
        entity["items"] = json.loads(text)


def _name_parents(written: dict[str, Any], table: TableFacts) -> None:
    parents = {key.columns[0]: key for key in table.foreign_keys if len(key.columns) == 1}
    for alias, column in written.get("join", {}).items():
        key = parents[column]
        written["join"][alias] = {"table": key.table, "on": {column: key.referred[0]}}


def _documents(design: str, tables: Mapping[str, TableFacts]) -> Documents:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(script_of(design, "sqlite"))
        return {name: list(_of_table(design, connection, table)) for name, table in tables.items()}


def _of_table(design: str, connection: sqlite3.Connection, table: TableFacts) -> Iterator[dict[str, Any]]:
    names = ", ".join(f'"{column.real}"' for column in table.columns)
    for row in connection.execute(f'SELECT {names} FROM "{table.real}"'):
        pairs = zip(table.columns, row, strict=True)
        document = {column.real: _value(design, column, value) for column, value in pairs}
        whole = {WHOLE_KEY: "#".join(str(document[name]) for name in table.primary_key)}
        yield document if len(table.primary_key) <= _MOST_PARTS else whole | document


def _value(design: str, column: Column, value: Any) -> Any:
    if value is None:
        return None
    if column.kind.name == "boolean":
        return bool(value)
    if column.kind.name == "json":
        return json.loads(value)
    if isinstance(value, float):
        return Decimal(str(value))
    return f"{value}Z" if (design, column.real) in ZONED else value
