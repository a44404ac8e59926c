from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

from migrator.model.errors import SettingsError
from migrator.source import connect
from migrator.source.connect import LIFE_S, Address, SecretProviders, address_of, identity_of, source_url
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


def test_a_file_beside_the_job_holds_the_url(tmp_path: Path) -> None:
    (tmp_path / "url.txt").write_text(f"\n  {URL_TEXT}\n\n")
    assert shown(address_of("file:url.txt", (), secret_providers(tmp_path))) == URL_TEXT
    assert shown(address_of(f"file:{tmp_path / 'url.txt'}", (), secret_providers())) == URL_TEXT


def test_a_secret_holds_the_url_or_what_rds_writes() -> None:
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
def test_an_answer_that_is_no_url_is_told(text: str, answers: dict[str, Any]) -> None:
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
def test_a_command_that_fails_is_told_without_its_output(command: tuple[str, ...]) -> None:
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


def test_an_answer_that_was_wrong_is_asked_for_again() -> None:
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
