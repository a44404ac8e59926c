"""Modules that `migrator export --as python` wrote for a job, loaded; their rows, items and answers beside migrator's own."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

import boto3

from migrator.api import Migration
from migrator.features.exports.model import Model, RowModel
from migrator.features.exports.python.expressions import Names, function_name
from migrator.features.exports.python.module import RowCode
from migrator.mapping.items.filters import FilterContext
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.items.rows import places_of
from migrator.mapping.model.facts import Kind
from migrator.mapping.model.mapping import Pattern
from migrator.mapping.model.table import SetOf
from migrator.mapping.patterns.answers import handed
from tests.exports.shipped import Shipped

CLIENT = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}


@dataclass(frozen=True)
class Generated:
    """Both modules of a job, and the class of the table in each."""

    through: ModuleType
    after: ModuleType
    job: Path
    endpoint: str
    table: str

    def opened(self, *, after: bool, trace: bool = False) -> Any:
        """The table's object, for `with`."""
        if not after:
            return table_of(self.through)(Migration.load(self.job))
        client = boto3.client("dynamodb", endpoint_url=self.endpoint, **CLIENT)
        return table_of(self.after)(client, self.table, cursor_key="a key of the tests alone", trace=trace)


def table_of(module: ModuleType) -> Any:
    """The class of the table."""
    (found,) = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__ and hasattr(value, "connect")
        if not value.__name__.startswith("_")
    ]
    return found


def generated(job: Shipped, endpoint: str) -> Generated:
    """The modules of the job, beside it."""
    modules = []
    for form in ("python", "boto3"):
        ended = job.run("export", "--as", form, "job.yaml", "--out", "service", "--allow-missing", "--json")
        assert ended.code == 0, ended.err
        (file,) = ended.data["files"]
        modules.append(loaded(job.folder / "service" / file["name"]))
    through, after = modules
    return Generated(through, after, job.folder / "job.yaml", endpoint, job.table)


def loaded(path: Path) -> ModuleType:
    name = f"generated_{path.parent.parent.name}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look for their annotations there
    spec.loader.exec_module(module)
    return module


# ── rows ──


def row_of(module: ModuleType, entity: CompiledEntity, row: RowModel, tree: tuple[Any, ...]) -> Any:
    """The generated class of the row with the values of a row tree."""
    names, places, decoded = row_code(entity, row), places_of(entity.plan), entity.decode(tree)
    given = {}
    for value in row.values:
        if value.path in names.children:
            number, inner = places.lists[value.path]
            called, of_child = names.children[value.path]
            kinds = {child.path: child.kind for child in value.children}
            given[names.fields[value.path]] = [
                getattr(module, called)(
                    **{
                        name: _plain(child[inner.columns[path]], kinds[path])
                        for path, name in of_child.items()
                    }
                )
                for child in decoded[number]
            ]
        else:
            given[names.fields[value.path]] = _plain(decoded[places.columns[value.path]], value.kind)
    return getattr(module, names.name)(**given)


def row_code(entity: CompiledEntity, row: RowModel) -> RowCode:
    return RowCode(Model(entity.table, "", (row,), (), FilterContext()), row, Names())


def _plain(value: Any, kind: Kind) -> Any:
    """A decoded value as a service has it."""
    if value is None or kind.distinct:
        return value and list(value)
    return UUID(value) if kind.name == "uuid" else float(value) if kind.name == "float" else value


def items_of(module: ModuleType, row: RowModel, made: Any) -> list[dict[str, Any]]:
    """The items that the module makes, Python's sets in them as migrator's own."""
    return [_with_sets(item) for item in getattr(module, f"{function_name(row.name)}_items")(made)]


def _with_sets(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_sets(inner) for name, inner in value.items()}
    return SetOf(sorted(value)) if isinstance(value, set) else value


def row_model(model: Model, entity: str) -> RowModel:
    return next(row for row in model.rows if row.name == entity)


# ── answers ──


def expected(pattern: Pattern, parts: Mapping[str, Sequence[tuple[Any, ...]]], kinds: Any) -> dict[str, Any]:
    """The typed answer of migrator's own, by part as lists of tuples."""
    answer = handed(pattern, {name: list(rows) for name, rows in parts.items()}, "sql", kinds).typed()
    listed = answer if isinstance(answer, dict) else {"": answer}
    return {
        name: [tuple(record.values()) for record in ([part] if isinstance(part, dict) else part or [])]
        for name, part in listed.items()
    }


def asked(table: Any, pattern: Pattern, params: Mapping[str, Any], *, at_once: bool) -> dict[str, Any]:
    """The generated function's answer, by part as lists of tuples."""
    method = function_name(pattern.name)
    given = _arguments(pattern, params)
    answer = (
        getattr(table, method)(**given)
        if at_once
        else asyncio.run(getattr(table, f"{method}_async")(**given))
    )
    if not pattern.parts[0].name:
        return {"": _tuples(answer)}
    parts = (getattr(answer, field.name) for field in fields(answer))
    return {part.name: _tuples(found) for part, found in zip(pattern.parts, parts, strict=True)}


def paged(table: Any, pattern: Pattern, params: Mapping[str, Any], size: int) -> list[tuple[Any, ...]]:
    """The answer read page by page."""
    given = _arguments(pattern, params)
    return [
        one for page in _pages(table, function_name(pattern.name), given, size) for one in _tuples(page.items)
    ]


def _pages(table: Any, method: str, given: Mapping[str, Any], size: int) -> Iterator[Any]:
    cursor = None
    while True:
        page = getattr(table, f"{method}_page")(**given, cursor=cursor, size=size)
        assert len(page.items) <= size
        yield page
        cursor = page.next
        if cursor is None:
            return


def _arguments(pattern: Pattern, params: Mapping[str, Any]) -> dict[str, Any]:
    """What a generated function takes: UUIDs, where `checked_params` has their texts."""
    names = Names().all(param.name for param in pattern.params)
    is_text = {param.name: param.type == "uuid" and not param.many for param in pattern.params}
    return {
        argument: UUID(params[name]) if is_text[name] and params[name] is not None else params[name]
        for name, argument in names.items()
    }


def _tuples(answer: Any) -> list[tuple[Any, ...]]:
    if answer is None:
        return []
    is_one = is_dataclass(answer) and not isinstance(answer, type)
    return [astuple(record) for record in ([answer] if is_one else answer)]
