"""What a command loads before it does anything, and that what it is declared with is what it takes."""

from __future__ import annotations

import inspect
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import click
import pytest

from migrator.cli.command_line import Leaf
from migrator.commands import cutover
from migrator.dynamodb import embedded
from migrator.main import cli
from migrator.mapping.model import evidence
from migrator.runtime.errors import STOPPED, WRONG_USE
from tests import pins
from tests.outside.test_commands import commands

MAPPING = Path(__file__).resolve().parents[3] / "mappings" / "ecommerce.yaml"
USERS = (
    "mapping: 1\ntable: {name: Shop, key: [PK, SK], type: type, ttl: expiresAt}\n"
    "entities: {users: {items: {User: {key: ['USER#{id}', USER]}}}}\n"
)
SLOW = frozenset(
    {"boto3", "botocore", "sqlalchemy", "sqlglot", "psycopg", "pymysql", "ministack", "rich", "structlog"}
)
LOADED = """
import contextlib, io, json, sys
from migrator.main import run
codes = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        codes.append(run(words))
print(json.dumps({"codes": codes, "loaded": sorted({part for name in sys.modules for part in (name, name.split(".")[0])})}))
"""


def loaded(folder: Path, *lines: list[str]) -> frozenset[str]:
    """The packages and modules that one new process has loaded after these commands, which have all succeeded."""
    ended = subprocess.run(
        [sys.executable, "-c", LOADED, json.dumps(lines)],
        cwd=folder,
        env={**os.environ, "MIGRATOR_HOME": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(ended.stdout)
    assert not any(told["codes"])
    return frozenset(told["loaded"])


def test_no_help_loads_what_only_work_needs(tmp_path: Path) -> None:
    helps = [[*words, "--help"] for words in commands(cli)]
    assert len(helps) > 30
    assert not loaded(tmp_path, *helps) & (SLOW | {"pydantic", "yaml", "asyncio", "logging"})


def test_a_help_loads_nothing_of_ours_that_only_work_needs(tmp_path: Path) -> None:
    said = "import sys; from migrator.main import run; run(['--help']); print(*sys.modules, file=sys.stderr)"
    ended = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    names = {name for name in ended.stderr.split() if name.startswith("migrator.")}
    assert "migrator.main" in names
    lower = {
        name
        for name in names
        if name.split(".")[1] in ("journal", "mapping", "runtime", "settings", "stages")
    }
    assert lower <= {
        *("migrator.mapping", "migrator.mapping.model", "migrator.mapping.model.durations"),
        *("migrator.runtime", "migrator.runtime.errors", "migrator.runtime.values"),
        *("migrator.settings", "migrator.settings.roles"),
    }


def test_stages_load_no_sql_parser_and_no_other_engines(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.execute("CREATE TABLE users (id INTEGER PRIMARY KEY)")
        database.execute("INSERT INTO users VALUES (1)")
        database.commit()
    (tmp_path / "shop.yaml").write_text(USERS)
    job = tmp_path / "job.yaml"
    job.write_text(
        f"job: 1\nmapping: shop.yaml\nsource: {{url: 'sqlite:///{tmp_path}/shop.db'}}\n"
        "target: {endpoint: embedded, region: eu-central-1}\n"
    )
    stages = ["backfill", "relay --once", "verify", "cutover status"]
    try:
        loaded(tmp_path, ["table", "create", str(job)], ["capture", "install", str(job)])  # they warn: a line
        packages = loaded(tmp_path, *([*stage.split(), str(job)] for stage in stages))
        of_status = loaded(tmp_path, ["status", str(job)])
    finally:
        embedded.stop(tmp_path / "embedded")
    assert {"sqlalchemy", "botocore"} <= packages & of_status
    unused = {
        "structlog",
        "pygments",
        "greenlet",
        "sqlglot",
        "psycopg",
        "pymysql",
        "ministack",
    }
    unused |= {"pyspark", "difflib", "prometheus_client", "rich.progress", "sqlalchemy.dialects.mysql"}
    unused |= {"migrator.source.capture.log.reader", "migrator.source.dynamodb.opening"}
    assert packages & unused == set()
    assert (
        of_status & {*unused, "migrator.mapping.patterns.answers", "migrator.stages.reverse.stage"} == set()
    )


WORKS = ("backfill", "verify", "status", "capture", "table", "cutover")


@pytest.mark.parametrize("command", WORKS)
def test_command_work_module_loads_no_sql_parser_and_no_orm(command: str) -> None:
    said = f"import sys, migrator.commands.{command}_work; print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    unused = {"sqlglot", "sqlalchemy.orm", "structlog", "psycopg", "pymysql", "pyspark"}
    assert not set(ended.stdout.split()) & unused


@pytest.mark.parametrize("words", [["--version"], ["local"], ["mapping", "check", str(MAPPING)]])
def test_command_without_a_database_loads_no_database_packages(tmp_path: Path, words: list[str]) -> None:
    packages = loaded(tmp_path, words)
    assert "click" in packages
    assert not packages & SLOW


def test_a_check_of_a_database_loads_no_aws(tmp_path: Path) -> None:
    mapping = tmp_path / "shop.yaml"
    mapping.write_text(USERS)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.execute("CREATE TABLE users (id INTEGER PRIMARY KEY)")
    packages = loaded(
        tmp_path, ["mapping", "check", str(mapping), "--source", f"sqlite:///{tmp_path}/shop.db"]
    )
    assert "sqlglot" in packages
    assert not packages & {"boto3", "botocore", "rich", "psycopg", "pymysql", "ministack"}


def test_the_phases_of_the_options_are_those_of_the_moves() -> None:
    assert cutover.PHASES == evidence.PHASES


COMPLETED = """
import atexit, sys
atexit.register(lambda: print(" ".join({name.split(".")[0] for name in sys.modules}), file=sys.stderr))
from migrator.main import main
main()
"""


def test_completing_a_word_loads_the_modules_of_a_help(tmp_path: Path) -> None:
    asked = {"_MIGRATOR_COMPLETE": "bash_complete", "COMP_WORDS": "migrator cutover ro", "COMP_CWORD": "2"}
    ended = subprocess.run(
        [sys.executable, "-c", COMPLETED],
        cwd=tmp_path,
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.split() == ["plain,rollback"]
    assert not set(ended.stderr.split()) & (SLOW | {"pydantic"})


def test_the_first_line_loads_what_makes_it(tmp_path: Path) -> None:
    said = "from migrator.runtime import logs; logs.configure(json=True); logs.get_logger('here').info('began', rows=1)"
    ended = subprocess.run(
        [sys.executable, "-c", said], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    line = json.loads(ended.stderr)
    assert (line["event"], line["room"], line["rows"], ended.stdout) == ("began", "here", 1, "")


def leaves() -> list[tuple[tuple[str, ...], Leaf]]:
    found = []
    for words in commands(cli):
        command: click.Command | None = cli
        for name in words:
            assert isinstance(command, click.Group)
            command = command.get_command(click.Context(command), name)
        if isinstance(command, Leaf):
            found.append((words, command))
    return found


@pytest.mark.parametrize(
    ("words", "command"), leaves(), ids=lambda value: "-".join(value) if isinstance(value, tuple) else ""
)
def test_command_is_declared_with_the_inputs_of_its_work(words: tuple[str, ...], command: Leaf) -> None:
    work = command.work()
    given = {str(param.name): None for param in command.params if param.expose_value}
    # What asks whether the journal is the table's hands on the job that it has read.
    inner = getattr(work, "__wrapped__", None)
    if inner is not None:
        given["session"] = given.pop("job")
    inspect.signature(inner or work).bind(**given)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--help >&-", 0),
        ("--help <&-", 0),
        ("status none.yaml 2>&-", WRONG_USE),
        ("status none.yaml 2>/dev/full", WRONG_USE),
        ("--help >/dev/full", STOPPED),
    ],
)
def test_a_stream_that_is_closed_or_full(words: str, code: int) -> None:
    ended = subprocess.run(
        ["sh", "-c", f'exec "$0" -m migrator {words}', sys.executable], capture_output=True, text=True
    )
    assert ended.returncode == code
    assert not ended.stderr or pins.said(ended.stderr)


def test_a_closed_pipe_is_no_result() -> None:
    """1 would be: differences were found."""
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-m", "migrator", "--help"], stdout=writer, stderr=subprocess.PIPE
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (STOPPED, b"")
