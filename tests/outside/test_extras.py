"""An installation without an extra: everything else works, and what needs it says what to install."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

pytestmark = pytest.mark.slow

_WITHOUT = """
import sys
for name in {missing!r}:
    sys.modules[name] = None
from migrator.main import run
sys.exit(run(sys.argv[1:]))
"""
DRIVERS = ("pymysql", "psycopg")


def without(missing: tuple[str, ...], folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command where these modules cannot be imported."""
    command = [sys.executable, "-c", _WITHOUT.format(missing=missing), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with sqlite3.connect(tmp_path / "shop.db") as shop:
        shop.execute("CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")
        shop.execute("INSERT INTO customer VALUES (1, 'Ann')")
    return tmp_path


@pytest.mark.parametrize("missing", [DRIVERS, ("pymysql",), ("psycopg",)], ids="+".join)
def test_sqlite_needs_no_drivers_of_servers(missing: tuple[str, ...], folder: Path) -> None:
    proposed = without(
        missing,
        folder,
        "init",
        "sqlite:///shop.db",
        "--statements",
        "none",
        "--no-prove",
        "--out",
        "shop.yaml",
    )
    assert proposed.returncode == 0, proposed.stderr
    ended = without(missing, folder, "mapping", "check", "shop.yaml", "--source", "sqlite:///shop.db")
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    ("engine", "missing"), [("postgres_database", "pymysql"), ("mysql_database", "psycopg")]
)
def test_a_server_needs_no_driver_of_another(
    engine: str, missing: str, folder: Path, request: pytest.FixtureRequest
) -> None:
    url = make_url(request.getfixturevalue(engine))
    driver = "psycopg" if missing == "pymysql" else "pymysql"
    server = sa.create_engine(url.set(drivername=f"{url.get_backend_name()}+{driver}"))
    with server.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE customer (id INTEGER PRIMARY KEY, name VARCHAR(9) NOT NULL)")
    server.dispose()
    asked = ("init", url.render_as_string(hide_password=False), "--statements", "none", "--no-prove")
    proposed = without((missing,), folder, *asked, "--out", "shop.yaml")
    assert proposed.returncode == 0, proposed.stderr


@pytest.mark.parametrize(
    ("url", "module", "library"),
    [
        ("mysql://u@127.0.0.1:1/shop", "pymysql", "pymysql"),
        ("postgresql://u@127.0.0.1:1/shop", "psycopg", "psycopg"),
    ],
)
def test_missing_driver_is_named_with_its_install_package(
    url: str, module: str, library: str, folder: Path
) -> None:
    ended = without((module,), folder, "init", url, "--out", "shop.yaml")
    assert ended.returncode == 2
    assert f"pip install '{library}" in ended.stderr
    assert "internal error" not in ended.stderr
