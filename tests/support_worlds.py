"""States of a shop in SQLite: made by commands once a worker, then copied for each test that asks for the same state.

A state is the project's folder (the source with its capture, the journal, the settings) and the items of its table. A copy
has a table of its own, so the journal's and the items' references to the first table are replaced by those to the new one.
"""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from sqlalchemy import String

from migrator.dynamodb.client import dynamodb_client
from migrator.journal import schema
from tests.journeys.command import Project

__all__ = ["prepared"]

_FIRST = "table create"
_COPIED = {"capture install", "backfill", "verify"}
"""Commands that leave no digest of the table's id in the journal, as a relay does."""
_JOURNALS = ".migrator/*.db"
_HOME = tempfile.TemporaryDirectory(prefix="migrator-worlds-")


@dataclass(frozen=True)
class _World:
    files: Path
    names: tuple[str, ...]
    items: list[dict[str, Any]]


_made: dict[str, _World] = {}


def prepared(project: Project, *commands: str) -> Project:
    """The project as these commands leave it, each of which is given the job: by a copy, if the state was made before.
    What comes after the first command that leaves more than a copy can hold is run each time."""
    copied = 1 + len([*takewhile(_COPIED.__contains__, commands[1:])])
    commands, more = commands[:copied], commands[copied:]
    if not _is_copyable(project, commands):
        return project.prepared(*commands, *more)
    key = _key(project, commands)
    world = _made.get(key)
    project.prepared(*(commands[:1] if world else commands))
    if world:
        _copy(world, project)
    elif any(project.folder.glob(_JOURNALS)):
        files = Path(_HOME.name) / key
        shutil.copytree(project.folder, files)
        _made[key] = _World(files, _names(project), _items(project))
    return project.prepared(*more)


def _is_copyable(project: Project, commands: Sequence[str]) -> bool:
    """Whether the commands begin with an untouched SQLite source in the project's folder, and copies are known to be right."""
    source = project.environment["MIGRATOR_SOURCE_URL"]
    return (
        commands[0] == _FIRST
        and source.startswith(f"sqlite:///{project.folder}/")
        and f"endpoint: '{project.endpoint}'" in project.job.read_text()
        and not any(project.folder.glob(_JOURNALS))
    )


def _key(project: Project, commands: Sequence[str]) -> str:
    """Of all that the commands read: files, and the environment's settings; without the project's own names."""
    parts = [repr(tuple(commands)).encode()]
    settings = {name: value for name, value in project.environment.items() if name.startswith("MIGRATOR_")}
    parts += [repr(sorted(settings.items())).encode()]
    for file in sorted(path for path in project.folder.rglob("*") if path.is_file()):
        parts += [str(file).encode(), file.read_bytes()]
    own = (
        b"\0".join(parts).replace(project.table.encode(), b"TABLE").replace(project.endpoint.encode(), b"URL")
    )
    return hashlib.sha256(own.replace(str(project.folder).encode(), b"FOLDER")).hexdigest()


def _client(project: Project) -> Any:
    return dynamodb_client(region=None, profile=None, endpoint=project.endpoint)


def _names(project: Project) -> tuple[str, ...]:
    table_id = _client(project).describe_table(TableName=project.table)["Table"]["TableId"]
    return table_id, project.table, str(project.folder), project.endpoint


def _items(project: Project) -> list[dict[str, Any]]:
    pages = _client(project).get_paginator("scan").paginate(TableName=project.table, ConsistentRead=True)
    return [item for page in pages for item in page["Items"]]


def _copy(world: _World, project: Project) -> None:
    renamed = list(zip(world.names, _names(project), strict=True))
    shutil.copytree(world.files, project.folder, ignore=shutil.ignore_patterns("*.yaml"), dirs_exist_ok=True)
    for journal in project.folder.glob(_JOURNALS):
        _rename_in_journal(journal, renamed)
    client = _client(project)
    for start in range(0, len(world.items), 25):
        items = [_renamed(item, renamed) for item in world.items[start : start + 25]]
        answer = client.batch_write_item(
            RequestItems={project.table: [{"PutRequest": {"Item": item}} for item in items]}
        )
        assert not answer["UnprocessedItems"]


def _rename_in_journal(file: Path, renamed: Sequence[tuple[str, str]]) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("PRAGMA synchronous=OFF")
        for table in schema.metadata.sorted_tables:
            columns = [column.name for column in table.columns if isinstance(column.type, String)]
            for before, after in renamed if columns else ():
                changes = ", ".join(f"{name} = replace({name}, :before, :after)" for name in columns)
                connection.execute(f"UPDATE {table.name} SET {changes}", {"before": before, "after": after})


def _renamed(value: Any, renamed: Sequence[tuple[str, str]]) -> Any:
    if isinstance(value, dict):
        return {name: _renamed(part, renamed) for name, part in value.items()}
    if isinstance(value, list):
        return [_renamed(part, renamed) for part in value]
    if isinstance(value, str):
        for before, after in renamed:
            value = value.replace(before, after)
    return value
