"""Passwords that change while a run goes on; nothing shows one."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import boto3
import psycopg
import pytest
from sqlalchemy.engine import make_url

from migrator.dynamodb.client import read_secret
from migrator.runtime.errors import SettingsError, SourceError
from migrator.source.engines.base import Address, ConnectionOptions
from migrator.source.engines.connect import SecretProviders, address_of, source_url
from migrator.source.reader import SqlSource
from tests import pins
from tests.support_mysql import end_sessions, run_script

PASSWORD = "hunter2"


@pytest.fixture
def reader(mysql_database: str) -> Iterator[str]:
    """The URL, without a password, of a user of MariaDB whose password is PASSWORD; without one it is refused."""
    name = f"reader_{secrets.token_hex(4)}"
    run_script(
        mysql_database, f"CREATE USER {name} IDENTIFIED BY '{PASSWORD}'; GRANT SELECT ON *.* TO {name}"
    )
    yield make_url(mysql_database).set(username=name).render_as_string()
    run_script(mysql_database, f"DROP USER {name}")


def in_file(reader: str, folder: Path, password: str) -> None:
    url = make_url(reader).set(password=password)
    (folder / "url").write_text(url.render_as_string(hide_password=False))


def test_a_new_connection_asks_for_the_password_again(reader: str, tmp_path: Path) -> None:
    in_file(reader, tmp_path, PASSWORD)
    found = address_of("file:url", (), SecretProviders(tmp_path, {}, str))
    with closing(SqlSource(found, connection_options=ConnectionOptions(pool_size=2))) as source:
        assert source.query("SELECT 1", {}) == [(1,)]
        name = make_url(reader).username
        run_script(reader.replace(f"{name}@", "root@"), f"ALTER USER {name} IDENTIFIED BY 'other'")
        in_file(reader, tmp_path, "other")
        _end_connections_of(reader)
        # The old answer is younger than a minute: the refusal alone makes it asked for again.
        assert source.query("SELECT 1", {}) == [(1,)]
        (tmp_path / "url").unlink()
        found.forget()
        _end_connections_of(reader)
        with pins.refused(SourceError) as caught:
            source.query("SELECT 1", {})
    assert PASSWORD not in str(caught.value)


def _end_connections_of(reader: str) -> None:
    name = make_url(reader).username
    end_sessions(reader.replace(f"{name}@", "root@"), str(name))


def test_a_wrong_password_is_reported_and_not_shown(reader: str) -> None:
    wrong = make_url(reader).set(password="s3cret").render_as_string(hide_password=False)
    source = SqlSource(Address.of(source_url(wrong)))
    with closing(source), pins.refused(SourceError) as caught:
        source.query("SELECT 1", {})
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(source._reading.engine)


def test_postgresql_accepts_a_url_from_a_variable(postgres_database: str) -> None:
    found = address_of("env:SHOP", (), SecretProviders(Path(), {"SHOP": postgres_database}, str))
    with closing(SqlSource(found, connection_options=ConnectionOptions("migrator shop verify"))) as source:
        assert source.query("SELECT current_setting('application_name')", {}) == [("migrator shop verify",)]
    with psycopg.connect(postgres_database) as server:
        assert server.execute("SELECT 1").fetchone() == (1,)


def test_a_secret_is_read_from_aws(dynamodb_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SECRETS_MANAGER", dynamodb_url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "local")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "local")
    client = boto3.client("secretsmanager", region_name="us-east-1")
    made = client.create_secret(Name=f"shop-{secrets.token_hex(4)}", SecretString=f"mysql://a:{PASSWORD}@h/x")
    assert read_secret(made["ARN"], region=None, profile=None) == f"mysql://a:{PASSWORD}@h/x"
    with pins.refused(SettingsError):
        read_secret("nothing", region="us-east-1", profile=None)
    with pytest.raises(SettingsError, match="NoRegion"):
        read_secret("nothing", region=None, profile=None)
