from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from migrator.model.errors import SettingsError
from migrator.runtime.system import how_to_install
from migrator.source.connect import place_of, source_url, url_identity
from tests import pins


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop one.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (a)")
    connection.close()
    return path


def test_an_sqlite_file_may_be_written_as_url_or_path(shop: Path) -> None:
    assert source_url(str(shop)) == source_url(f"sqlite:///{shop}")
    assert source_url(str(shop)).database == str(shop)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_postgresql_is_always_read_with_psycopg_3(scheme: str) -> None:
    url = source_url(f"{scheme}://ada:secret@db.example:5433/shop?sslmode=require")
    assert url.drivername == "postgresql+psycopg"
    assert (url.host, url.port, url.database, url.password) == ("db.example", 5433, "shop", "secret")
    assert url.query == {"sslmode": "require"}


@pytest.mark.parametrize("scheme", ["mysql", "mariadb", "mysql+pymysql", "mariadb+pymysql"])
def test_mysql_and_mariadb_are_always_read_with_pymysql(scheme: str) -> None:
    url = source_url(f"{scheme}://ada:secret@db.example:3307/shop?ssl_ca=ca.pem")
    assert url.drivername == "mysql+pymysql"
    assert (url.host, url.port, url.database, url.password) == ("db.example", 3307, "shop", "secret")
    assert url.query == {"ssl_ca": "ca.pem"}


@pytest.mark.parametrize(
    "text",
    [
        "mysql://ada:secret@db",
        "mariadb://ada:secret@db/",
        "mysql://ada:p@ss/secret@db/shop",
        "mysql+mysqldb://ada:secret@db/shop",
        "mariadb+mariadbconnector://ada:secret@db/shop",
        "postgresql+asyncpg://ada:secret@db/shop",
        "oracle://ada:secret@db/shop",
        "postgresql://ada:secret@db:port/shop",
        "postgresql//ada:secret@db/shop",
        "postgresql://ada:p@ss/secret@db/shop",
        "://secret",
        "sqlite://ada:secret@db/shop",
        "sqlite:///shop.db?secret=1",
        "sqlite://",
        "sqlite:///:memory:",
        "",
    ],
    ids=[
        "names-database",
        "names-database-mariadb",
        "case",
        "read",
        "read-mariadb",
        "psycopg",
        "supported",
        "read-postgresql",
        "exist",
        "case-postgresql",
        "read-2",
        "three-slashes",
        "three-slashes-2",
        "memory",
        "memory-memory",
        "read-3",
    ],
)
def test_anything_else_is_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        source_url(text)
    assert pins.said(str(caught.value))
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_missing_sqlite_file_is_refused_and_not_created(tmp_path: Path) -> None:
    missing = tmp_path / "missing.db"
    for text in (str(missing), f"sqlite:///{missing}"):
        with pins.refused(SettingsError):
            source_url(text)
    assert not missing.exists()


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n"], ids=["empty", "database"])
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file.db"
    path.write_bytes(content)
    with pins.refused(SettingsError):
        source_url(str(path))


def test_a_look_at_the_file_leaves_the_locks_of_this_process(tmp_path: Path) -> None:
    """A service holds one, and another process must not get it."""
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as service:
        service.execute("CREATE TABLE customer (id INTEGER PRIMARY KEY)")
        service.execute("BEGIN EXCLUSIVE")
        source_url(str(path))
        source_url(f"sqlite:///{path}")
        write = f"import sqlite3; sqlite3.connect({str(path)!r}, timeout=0).execute('INSERT INTO customer VALUES (1)')"
        other = subprocess.run([sys.executable, "-c", write], capture_output=True, text=True, check=False)
    assert pins.said(other.stderr)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="IsADirectoryError"):
        source_url(str(tmp_path))


@pytest.mark.parametrize(
    ("scheme", "driver", "extra"), [("postgresql", "psycopg", "postgres"), ("mysql", "pymysql", "mysql")]
)
def test_a_missing_driver_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, scheme: str, driver: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    with pytest.raises(SettingsError, match=re.escape(how_to_install(extra))):
        source_url(f"{scheme}://db/shop")


def test_the_place_names_no_user_and_no_password(shop: Path) -> None:
    url = source_url("postgresql://ada:secret@db.example:5433/shop?options=-csecret")
    assert place_of(url) == "PostgreSQL database shop at db.example:5433"
    url = source_url("mariadb://ada:secret@db.example:3307/shop?init_command=secret")
    assert place_of(url) == "MySQL or MariaDB database shop at db.example:3307"
    assert place_of(source_url(str(shop))) == f"SQLite file {shop}"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "postgresql://ada:old@db.example.com/shop",
            "postgres://bob:new@DB.example.com.:5432/shop?sslmode=require",
        ),
        ("mysql://root@127.0.0.1:3306/shop", "mariadb+pymysql://app:x@localhost/shop"),
        ("postgresql://[::1]/shop", "postgresql:///shop?host=/var/run/postgresql"),
        ("postgresql://a/shop?x=1", "postgresql:///shop?host=a"),
    ],
)
def test_a_user_a_password_or_an_alias_of_this_machine_makes_no_other_source(one: str, other: str) -> None:
    assert url_identity(one) == url_identity(other) != ""


@pytest.mark.parametrize(
    "other",
    [
        "postgresql://db.example.com/staging",
        "postgresql://db.example.com:5433/shop",
        "postgresql://staging.example.com/shop",
        "mysql://db.example.com/shop",
    ],
)
def test_another_host_port_database_or_kind_makes_another_source(other: str) -> None:
    assert url_identity("postgresql://db.example.com/shop") != url_identity(other) != ""


def test_a_file_is_one_source_by_each_of_its_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert url_identity("sqlite:///shop.db") == url_identity(f"{tmp_path}/sub/../shop.db")


@pytest.mark.parametrize(
    "text", ["", "postgresql://u:p@w@host/db", "oracle://host/db", "mysql://host:port/db"]
)
def test_of_what_is_no_source_nothing_is_known(text: str) -> None:
    assert url_identity(text) == ""


def test_what_a_source_is_called_holds_no_user_and_no_password() -> None:
    named = url_identity("postgresql://ada:secret@db/shop?password=secret")
    assert not any(word in named for word in ("ada", "secret"))
