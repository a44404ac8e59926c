from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
import traceback
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from migrator.runtime.errors import SettingsError
from migrator.runtime.system import how_to_install
from migrator.source.engines import connect
from migrator.source.engines.base import LIFE_S, Address, ConnectionOptions
from migrator.source.engines.connect import (
    ENGINES,
    SUPPORTED,
    SecretProviders,
    address_of,
    engine_at,
    engine_of,
    identity_of,
    place_of,
    read_engine,
    source_url,
    url_identity,
)
from tests import pins

SECRET = "hunter2"
URL_TEXT = f"postgresql://ada:{SECRET}@db.example/shop"
RDS = {
    "username": "ada",
    "password": "p@ss:w/rd",
    "host": "db.example",
    "port": 5433,
    "dbname": "shop",
    "engine": "postgres",
}


def secret_providers(
    folder: Path = Path(), environ: dict[str, str] | None = None, secret: str = ""
) -> SecretProviders:
    return SecretProviders(folder, environ or {}, lambda name: secret)


def python(program: str) -> tuple[str, ...]:
    return (sys.executable, "-c", program)


def shown(found: Address) -> str:
    return found.url().render_as_string(hide_password=False).replace("+psycopg", "")


def fault_of(text: str, command: tuple[str, ...] = (), asked: SecretProviders | None = None) -> str:
    """The message; neither it nor its trace holds the secret."""
    with pytest.raises(SettingsError) as caught:
        address_of(text, command, asked or secret_providers()).url()
    assert SECRET not in str(caught.value)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    return str(caught.value)


# ── which provider is asked ──


def test_a_url_stands_for_itself() -> None:
    assert shown(address_of(URL_TEXT, (), secret_providers())) == URL_TEXT


def test_a_variable_holds_the_url() -> None:
    assert shown(address_of("env:SHOP", (), secret_providers(environ={"SHOP": URL_TEXT}))) == URL_TEXT


def test_a_file_next_to_the_job_holds_the_url(tmp_path: Path) -> None:
    (tmp_path / "url.txt").write_text(f"\n  {URL_TEXT}\n\n")
    assert shown(address_of("file:url.txt", (), secret_providers(tmp_path))) == URL_TEXT
    assert shown(address_of(f"file:{tmp_path / 'url.txt'}", (), secret_providers())) == URL_TEXT


def test_secret_contains_the_url_or_the_fields_of_rds() -> None:
    name = "secret:arn:aws:secretsmanager:eu-central-1:1:secret:shop"
    assert shown(address_of(name, (), secret_providers(secret=URL_TEXT))) == URL_TEXT
    found = address_of(name, (), secret_providers(secret=json.dumps(RDS))).url()
    assert (found.username, found.password, found.host) == ("ada", "p@ss:w/rd", "db.example")
    assert (found.port, found.database, found.drivername) == (5433, "shop", "postgresql+psycopg")
    found = address_of(
        name, (), secret_providers(secret=json.dumps({**RDS, "engine": "aurora-mysql", "port": "3306"}))
    ).url()
    assert (found.port, found.drivername) == (3306, "mysql+pymysql")


def test_a_command_prints_the_url_or_the_password() -> None:
    assert shown(address_of("", python(f"print({URL_TEXT!r})"), secret_providers())) == URL_TEXT
    found = address_of(
        "env:SHOP",
        python("print('t0ken&=')"),
        secret_providers(environ={"SHOP": "mysql://ada@db.example/shop"}),
    )
    assert found.url().password == "t0ken&="
    assert found.url().username == "ada"


# ── what can be wrong, told without a secret ──


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("env:SHOP", {}),
        ("env:SHOP", {"environ": {"SHOP": SECRET}}),
        ("env:SHOP", {"environ": {"SHOP": f"oracle://ada:{SECRET}@h/x"}}),
        ("file:none.txt", {}),
        ("file:.", {}),
        ("secret:shop", {"secret": SECRET}),
        ("secret:shop", {"secret": '{"password": "' + SECRET}),
        ("secret:shop", {"secret": json.dumps({"username": "a", "password": SECRET})}),
        ("secret:shop", {"secret": json.dumps({**RDS, "engine": "oracle"})}),
        ("secret:shop", {"secret": json.dumps({**RDS, "port": SECRET})}),
    ],
    ids=[
        "variable-set",
        "env-hold",
        "supported",
        "such-directory",
        "read-directory",
        "secret-shop",
        "begins",
        "engine-host",
        "engine-port",
        "engine-port-port",
    ],
)
def test_an_answer_that_is_no_url_is_reported(text: str, answers: dict[str, Any]) -> None:
    assert pins.said(fault_of(text, asked=secret_providers(**answers)))


@pytest.mark.parametrize(
    "command",
    [
        python(f"import sys; print({SECRET!r}); sys.exit({SECRET!r})"),
        python(f"import sys; print({SECRET!r}, file=sys.stderr)"),
        python(f"print({SECRET!r})"),
        python("import sys; sys.stdout.buffer.write(b'\\xff')"),
        ("no-such-program-here", SECRET),
    ],
    ids=["ended-code", "printed-nothing", "output", "case", "started-directory"],
)
def test_failing_command_is_reported_without_its_output(command: tuple[str, ...]) -> None:
    assert pins.said(fault_of("", command))


def test_a_command_that_gives_no_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "COMMAND_LIMIT_S", 0.3)
    assert pins.said(fault_of("", python(f"import time; {SECRET!r}; time.sleep(60)")))


# ── asked again ──


class Asked:
    """An address whose password counts how often it was asked for."""

    def __init__(self) -> None:
        self.now = 0.0
        self.times = 0
        self.address = Address(self.ask, lambda: self.now)

    def ask(self) -> Any:
        self.times += 1
        return source_url(f"postgresql://ada@h/shop?options={self.times}")


def test_an_answer_is_believed_for_a_minute() -> None:
    asked = Asked()
    first = asked.address.url()
    asked.now = LIFE_S
    assert asked.address.url() == first
    asked.now = LIFE_S + 1
    assert asked.address.url() != first
    assert asked.times == 2


def test_wrong_answer_is_requested_again() -> None:
    asked = Asked()
    asked.address.url()
    asked.address.forget()
    asked.address.url()
    assert asked.times == 2


def test_an_address_is_never_shown() -> None:
    found = address_of(URL_TEXT, (), secret_providers())
    found.url()
    assert SECRET not in repr(found) + str(vars(found).keys())


def test_the_name_of_a_source_asks_no_provider(tmp_path: Path) -> None:
    """A variable and a file are looked at; a secret is known by its own name, and no program is run."""

    def never(name: str) -> str:
        raise AssertionError(name)

    (tmp_path / "url").write_text("postgresql://ada:secret@db/shop\n")
    asked = SecretProviders(tmp_path, {"SHOP_URL": "postgresql://bob@db/shop"}, never)
    named = [identity_of(text, asked) for text in ("env:SHOP_URL", "file:url", "postgresql://db/shop")]
    assert named == ["PostgreSQL database shop at db:5432"] * 3
    assert identity_of("secret:prod/shop", asked) != identity_of("secret:staging/shop", asked)
    assert [identity_of(text, asked) for text in ("env:NONE", "file:none", "")] == ["", "", ""]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop one.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (a)")
    connection.close()
    return path


def test_a_backup_in_the_files_place_is_read(shop: Path) -> None:
    engine = read_engine(Address.of(source_url(str(shop))), ConnectionOptions(pool_size=1))
    with engine.connect() as connection:
        assert not connection.exec_driver_sql("SELECT a FROM t").all()
    with closing(sqlite3.connect(shop.with_name("backup.db"), isolation_level=None)) as backup:
        backup.executescript("CREATE TABLE t (a); INSERT INTO t VALUES (1)")
    shop.with_name("backup.db").replace(shop)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT a FROM t").all() == [(1,)]
    shop.unlink()
    with pytest.raises(sa.exc.OperationalError, match="unable to open"):
        engine.connect()


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
def test_missing_driver_is_named_with_its_install_command(
    monkeypatch: pytest.MonkeyPatch, scheme: str, driver: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    with pytest.raises(SettingsError, match=re.escape(how_to_install(extra))):
        source_url(f"{scheme}://db/shop")


def test_the_place_names_no_user_and_no_password(shop: Path) -> None:
    url = source_url("postgresql://ada:secret@db.example:5433/shop?options=-csecret")
    assert place_of(url) == "PostgreSQL database shop at db.example:5433"
    url = source_url("postgresql://ada:secret@/shop?host=db.example&port=5433&password=secret")
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
        ("postgresql://a:5433/shop", "postgresql://?host=a&port=5433&dbname=shop"),
    ],
)
def test_user_password_or_host_alias_do_not_change_the_source(one: str, other: str) -> None:
    assert url_identity(one) == url_identity(other) != ""


@pytest.mark.parametrize(
    "other",
    [
        "postgresql://db.example.com/staging",
        "postgresql://db.example.com:5433/shop",
        "postgresql:///shop?host=db.example.com&port=5433",
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


def test_source_name_has_neither_user_nor_password() -> None:
    named = url_identity("postgresql://ada:secret@db/shop?password=secret")
    assert not any(word in named for word in ("ada", "secret"))


def test_unknown_dialect_error_names_the_supported_ones() -> None:
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
