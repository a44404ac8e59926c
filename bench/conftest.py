"""Fixtures of several benches, and the tables printed at the end."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.measure import Tables
from bench.shapes import ROWS, SHAPES, fill
from tests.conftest import (
    dynamodb_url,
    mysql_database,
    mysql_url,
    postgres_database,
    postgres_pool,
    postgres_url,
)

__all__ = [
    "dynamodb_url",
    "mysql_database",
    "mysql_url",
    "postgres_database",
    "postgres_pool",
    "postgres_url",
]

_TABLES = pytest.StashKey[Tables]()
IN_PYTHON = (sys.executable, "-m", "bench.sink")


@contextmanager
def started(command: Sequence[str]) -> Iterator[str]:
    """URL of an endpoint that prints its port."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.kill()


def compiled(folder: Path) -> str:
    """Path of the compiled C sink; '' without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return ""
    made = folder / "sink"
    source = Path(__file__).with_name("sink.c")
    subprocess.run([compiler, "-O2", "-pthread", "-o", str(made), str(source)], check=True)
    return str(made)


@pytest.fixture(scope="session")
def sink_command(tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    """Command of the sink: in C, or without a compiler in Python, which uses a core of its own."""
    if made := compiled(tmp_path_factory.mktemp("sink")):
        return [made]
    print("\nno C compiler (cc, gcc): the sink is the one in Python, and items/s are its own")
    return IN_PYTHON


@pytest.fixture(scope="module")
def sink(sink_command: Sequence[str]) -> Iterator[str]:
    with started(sink_command) as url:
        yield url


@pytest.fixture(params=SHAPES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


_SERVERS = [
    "sqlite",
    pytest.param("postgresql", marks=pytest.mark.postgres),
    pytest.param("mariadb", marks=pytest.mark.mysql),
]


@pytest.fixture(params=_SERVERS)
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/bench.db"
    fixture = "postgres_database" if request.param == "postgresql" else "mysql_database"
    return str(request.getfixturevalue(fixture))


@pytest.fixture
def url(empty: str, name: str) -> str:
    return fill(empty, name, ROWS)


@pytest.fixture
def tables(pytestconfig: pytest.Config) -> Tables:
    """Markdown tables printed at the end."""
    return pytestconfig.stash.setdefault(_TABLES, Tables())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in terminalreporter.config.stash.get(_TABLES, Tables()).lines():
        terminalreporter.write_line(line)
