"""Mappings that were moved, as TypeScript: compiled, and what Node makes of it."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from migrator.features.exports.electrodb import (
    Identifiers,
    ItemCode,
    runtime_names,
    vocabulary,
)
from migrator.features.exports.model import Model, model_of
from migrator.mapping.check.check import Checked
from migrator.mapping.items.items import CompiledEntity, items_for
from migrator.mapping.items.rows import decoder_of, decoding_steps, places_of
from migrator.mapping.items.values import attribute
from migrator.mapping.model.table import Item, RowTree
from migrator.mapping.patterns.params import read_params
from migrator.settings.job import SourceSettings
from migrator.settings.transforms import checked_on, read_mapping
from migrator.source.reader import SqlSource
from migrator.stages.session.source import SourceWork, open_source
from tests.designs.golden import script_of
from tests.designs.moved import Moved
from tools.pages.golden import DESIGNS, GoldenQuery

HEAD = ["Generated for a test."]
TSC = [
    "--strict",
    "--exactOptionalPropertyTypes",
    "--noUnusedLocals",
    "--skipLibCheck",
    "--target",
    "es2022",
    "--module",
    "commonjs",
    "--types",
    "node",
]


def described(moved: Moved) -> Model:
    return model_of(moved.checked.mapping, moved.checked.read_plans, moved.store.design)


@dataclass(frozen=True)
class Asked:
    """What Node is asked of one mapping, and what must come of it. `given`: parameters as a program has them."""

    moved: Moved
    queries: Sequence[GoldenQuery]
    given: Sequence[tuple[str, dict[str, Any]]] = ()
    rows: list[dict[str, Any]] = field(default_factory=list)
    wanted: list[Item] = field(default_factory=list)

    @property
    def file(self) -> str:
        return f"{self.moved.name}_electrodb"

    def job(self) -> dict[str, Any]:
        names = function_names(described(self.moved))
        patterns = self.moved.checked.mapping.patterns
        asked = [
            *((query.pattern, read_params(patterns[query.pattern], query.params)) for query in self.queries),
            *self.given,
        ]
        questions = [{"pattern": names[name], "params": plain(params)} for name, params in asked]
        table = self.moved.store.design.name
        return {
            **{"name": f"./{self.file}.js", "table": table},
            **{"questions": questions, "rows": self.rows},
        }

    def add_rows(self) -> None:
        """All rows with what their items must be."""
        model = described(self.moved)
        items = vocabulary(model, Identifiers(runtime_names()), [])
        spoken = {item.made.called: item for item in items}
        for entity in self.moved.checked.entities:
            for row in self.moved.source.read_page(entity.plan, None, None, None):
                values = _values(entity, row)
                seen: Counter[str] = Counter()
                for item in items_for(entity, row):
                    type_ = self.moved.store.design.type_of(item)
                    seen[type_] += 1
                    copy = spoken.get(f"{type_} {seen[type_]}")
                    self._add(copy or spoken[type_], item, values)

    def _add(self, spoken: ItemCode, item: Item, values: Mapping[str, Any]) -> None:
        table = self.moved.store.design
        own = {name: value for name, value in item.items() if name not in table.own_attributes}
        written = {one.name for one in spoken.made.attributes} | {str(table.ttl)}
        of = {
            name: own.get(name) if one.stored else _value(values, name.removeprefix("row."))
            for name, one in spoken.inputs.items()
        }
        attributes = {name: value for name, value in own.items() if name in written}
        made = {"type": spoken.made.called, "keys": spoken.keys, "values": of, "attributes": attributes}
        self.rows.append(plain(made))
        self.wanted.append(own)


def function_names(model: Model) -> dict[str, str]:
    """By pattern the function that asks it, where no other name is like it."""
    names = Identifiers(runtime_names())
    return {pattern.pattern.name: names.function(pattern.pattern.name) for pattern in model.patterns}


def _values(entity: CompiledEntity, row: RowTree) -> dict[str, Any]:
    """By path the row's values in the form that items have; of a list by its rows."""
    decoded = decoder_of(decoding_steps(entity.plan))(row)
    places = places_of(entity.plan)
    values = {
        path: attribute(decoded[place]) for path, place in places.columns.items() if place < len(decoded)
    }
    for alias, (place, inner) in places.lists.items():
        for path, number in inner.columns.items():
            values[f"{alias}.{path}"] = [attribute(child[number]) for child in decoded[place]]
    return values


def _value(values: Mapping[str, Any], path: str) -> Any:
    return values[path]


def plain(value: Any) -> Any:
    """As JSON holds it; a number as JavaScript does."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, UUID):
        return str(value)
    return value.isoformat() if isinstance(value, date) else value


def compiled(node: Path, modules: Mapping[str, str], *also: str) -> None:
    """Compiled, and files beside them that import them."""
    for name, text in modules.items():
        (node / f"{name}.ts").write_text(text, encoding="utf-8")
    command = ["npx", "tsc", *TSC, *(f"{name}.ts" for name in modules), *also]
    ended = subprocess.run(command, cwd=node, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stdout


def answered(node: Path, endpoint: str, asked: Sequence[Asked]) -> list[dict[str, Any]]:
    jobs = [one.job() for one in asked]
    region = asked[0].moved.store.client.meta.region_name
    (node / "asked.json").write_text(
        json.dumps({"endpoint": endpoint, "region": region, "jobs": jobs}), encoding="utf-8"
    )
    command = ["node", "driver.js", "asked.json", "answered.json"]
    ended = subprocess.run(command, cwd=node, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    found = json.loads((node / "answered.json").read_text(encoding="utf-8"), parse_float=Decimal)
    assert isinstance(found, list)
    return found


@dataclass(frozen=True)
class Opened:
    """A mapping against its source, which is open; nothing is moved."""

    source: SqlSource
    checked: Checked

    @property
    def model(self) -> Model:
        return model_of(self.checked.mapping, self.checked.read_plans, self.checked.mapping.table)


@contextmanager
def opened(mapping: Path, url: str) -> Iterator[Opened]:
    parsed = read_mapping(mapping)
    with open_source(SourceSettings(url=url), parsed, SourceWork(workers=1)) as source:
        assert isinstance(source, SqlSource)
        yield Opened(source, checked_on(source, parsed))


@contextmanager
def opened_design(name: str, folder: Path) -> Iterator[Opened]:
    """A design on SQLite."""
    with opened(
        DESIGNS / f"{name}.yaml", sqlite_with(folder / f"{name}.db", script_of(name, "sqlite"))
    ) as made:
        yield made


def sqlite_with(file: Path, script: str) -> str:
    """The URL of a new database."""
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(script)
    return f"sqlite:///{file}"
