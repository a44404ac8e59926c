"""`migrator mapping check --invertible`: tables that come back, what is lost of others, and where to mend it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from migrator.main import run
from tests import pins

MAPPING = """mapping: 1
table: {name: Shop, key: [PK, SK], type: type}
entities:
  user:
    table: users
    items:
      User: {key: ["USER#{id}", M], keep: [name]}
  order:
    table: orders
    items:
      Order: {key: ["ORDER#{id}", M], keep: all}
"""


@pytest.fixture
def source(tmp_path: Path) -> str:
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        connection.executescript(
            "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, city TEXT, born DATE NOT NULL);"
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, total NUMERIC(9, 2), twice AS (total * 2))"
        )
    return f"sqlite:///{tmp_path / 's.db'}"


Check = Callable[..., tuple[int, str]]


@pytest.fixture
def checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Check:
    """The exit code for a mapping's text, and what is printed."""

    def check(text: str, *words: str) -> tuple[int, str]:
        file = tmp_path / "m.yaml"
        file.write_text(text, encoding="utf-8")
        code = run(["mapping", "check", str(file), "--invertible", *words])
        return code, "".join(capsys.readouterr())

    return check


def test_lost_column_is_reported_with_its_line_and_fix(checked: Check, source: str, tmp_path: Path) -> None:
    code, text = checked(MAPPING, "--source", source)
    assert code == 1
    assert text.splitlines() == [
        pins.text("users"),
        pins.text("city"),
        pins.text("born"),
        f"  {tmp_path}/m.yaml:7: entities.user.items.User: write keep: [name, city, born]",
        "orders: invertible",
        pins.text("come", tmp_path=tmp_path),
    ]


def test_what_it_suggests_fixes_it(checked: Check, source: str) -> None:
    code, text = checked(MAPPING.replace("[name]", "[name, city, born]"), "--source", source)
    assert (code, text.splitlines()[0]) == (0, "users: invertible")


def test_the_same_as_json(checked: Check, source: str) -> None:
    code, text = checked(MAPPING, "--source", source, "--json")
    users, orders = json.loads(text)
    assert code == 1
    assert users["lost"] == [
        {"column": "city", "cause": "absent", "why": pins.text("item"), "needed": False},
        {"column": "born", "cause": "absent", "why": pins.text("item-2"), "needed": True},
    ]
    assert (users["line"], users["mend"]) == (7, "keep: [name, city, born]")
    assert (orders["invertible"], orders["lost"], orders["mend"]) == (True, [], None)


def test_missing_information_is_named_without_a_source(checked: Check) -> None:
    code, text = checked(MAPPING)
    assert code == 2
    assert "give --source" in text


def test_a_mapping_with_faults_is_refused_with_them(checked: Check, source: str) -> None:
    code, text = checked(MAPPING.replace("[name]", "[nme]"), "--source", source)
    assert code == 2
    assert "nme" in text
