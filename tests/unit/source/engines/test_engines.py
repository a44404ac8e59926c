"""Only source/engines distinguishes engines, and an unknown one is an error."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from migrator.model.errors import SettingsError
from migrator.source.connect import ENGINES, SUPPORTED, engine_at, engine_of, source_url
from tests import pins

HOUSE = Path(__file__).resolve().parents[4] / "migrator"
MAY_COMPARE = (HOUSE / "source" / "engines", HOUSE / "journal")
NAMES = {name for engine in ENGINES for name in (engine.name, *engine.also, *engine.connecting.schemes)} | {
    "aiosqlite",
    "asyncpg",
}
OF_OTHERS = {"MySql"}
"""A word of NoSQL Workbench's format."""
OF_ONE_ENGINE = {"PostgresqlDdl", "MysqlDdl", "SqliteDdl"}


def _modules() -> list[Path]:
    return [
        path for path in sorted(HOUSE.rglob("*.py")) if not any(one in path.parents for one in MAY_COMPARE)
    ]


def _told_apart(text: str) -> Iterator[str]:
    """Lines that name a dialect, compare one, or ask for the class of one engine."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value.lower().rstrip(":/") in NAMES and node.value not in OF_OTHERS:
                yield f"{node.lineno}: names {node.value!r}"
        elif isinstance(node, ast.Compare):
            if any(_is_of_dialect(one) for one in (node.left, *node.comparators)):
                yield f"{node.lineno}: compares {ast.unparse(node)}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
            if any(getattr(one, "id", "") in OF_ONE_ENGINE for one in ast.walk(node.args[1])):
                yield f"{node.lineno}: asks {ast.unparse(node)}"
        elif isinstance(node, (ast.Subscript, ast.Match)):
            subject = node.slice if isinstance(node, ast.Subscript) else node.subject
            if _is_of_dialect(subject):
                yield f"{node.lineno}: chooses by {ast.unparse(subject)}"


def _is_of_dialect(node: ast.AST) -> bool:
    """Whether it is a dialect's name: `….dialect.name`, `….dialect`, a variable `dialect`, a URL's backend."""
    text = ast.unparse(node)
    return text.endswith(("dialect", "dialect.name", "get_backend_name()"))


@pytest.mark.slow
def test_no_module_but_the_engines_tells_one_dialect_from_another() -> None:
    found = [
        f"{path.relative_to(HOUSE.parent)}:{what}"
        for path in _modules()
        for what in _told_apart(path.read_text(encoding="utf-8"))
    ]
    assert not found, "give base.Engine a field for it, and each engine its own value"


@pytest.mark.parametrize(
    "text",
    [
        'if dialect == "oracle": ...',
        "if connection.dialect.name in KNOWN: ...",
        "found = READERS[connection.dialect.name]",
        'READERS = {"postgresql": 1}',
        'if url.startswith("sqlite:"): ...',
        'if "postgresql" in url: ...',
        "if engine.dialect.name != other.dialect.name: ...",
        "if isinstance(ddl, MysqlDdl): ...",
        "match url.get_backend_name():\n    case _: ...",
    ],
)
def test_what_would_tell_dialects_apart_is_found(text: str) -> None:
    assert list(_told_apart(text))


def test_an_unknown_dialect_is_an_error_that_names_the_known_ones() -> None:
    with pins.refused(SettingsError, "engine"):
        engine_of("oracle")
    with pins.refused(SettingsError, "supported"):
        source_url("oracle://ann@host/shop")


def test_a_name_means_one_engine() -> None:
    names = [name for engine in ENGINES for name in (engine.name, *engine.also)]
    schemes = [scheme for engine in ENGINES for scheme in engine.connecting.schemes]
    assert len(names) == len(set(names))
    assert len(schemes) == len(set(schemes))
    assert engine_of("mariadb") is engine_of("mysql")
    assert engine_at(sa.create_engine("sqlite://")) is engine_of("sqlite")
    assert all(engine.connecting.form in SUPPORTED for engine in ENGINES)
