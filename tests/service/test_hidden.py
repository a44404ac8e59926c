"""What one pattern redacts is shown by no other one: not by a service's samples, nor by a replay."""

from __future__ import annotations

import os

import pytest

from tests.journeys.in_process import run_here
from tests.service.reading import ReadShop, records, seen

pytestmark = pytest.mark.engines("sqlite")
# user_and_orders redacts email; this one forgot to.
OTHER = """\
  user_by_mail:
    params: {user_id: integer}
    get: {key: ["USER#{user_id}", META]}
    returns: [name, email]
    sql: SELECT name, email FROM users WHERE id = :user_id
"""
SECRET = "secret@example.com"


def test_values_that_another_pattern_redacts_are_marks(read_shop: ReadShop) -> None:
    shop = read_shop
    mapping = shop.folder / "mapping.yaml"
    mapping.write_text(mapping.read_text() + OTHER)
    shop.sql(f"UPDATE users SET email = '{SECRET}' WHERE id = 1")
    shop.move("shadow", 0, "user_by_mail")
    with shop.migration() as migration:
        seen(migration, "shadow", "user_by_mail")
        assert records(migration.read("user_by_mail", user_id=1))[0]["email"] == SECRET
        shop.until(migration, "user_by_mail", lambda one: one.different == 1)
    words = [
        "shadow",
        "replay",
        str(shop.job),
        "--pattern",
        "user_by_mail",
        "--sample",
        "5",
        "--seed",
        "1",
        "--settle",
        "0s",
    ]
    for how in ([], ["--json"]):
        ended = run_here([*words, *how], shop.folder, dict(os.environ))
        assert ended.code == 1, ended.err
        assert "@example.com" not in ended.out + ended.err
    samples = shop.samples("user_by_mail")
    assert len({one.writer for one in samples}) == 3
    for one in samples:
        assert one.row is not None
        assert (one.row[0], one.row[1][0]) == ('"Ada"', "…")
        assert "@example.com" not in str(one)
