"""Access patterns on old tables of DynamoDB: asked of both sides, replayed, compared, and read by a service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from migrator.api import Migration
from migrator.settings.roles import ROLES, SQL_ROLES
from tests.faults.proxy import FaultProxy, Faults
from tests.journeys.documents import PATTERNS, Shop, old_shop


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Iterator[Shop]:
    with old_shop(tmp_path, dynamodb_url) as made:
        yield made


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        (["profile", "-p", "user_id=u4"], [["Name 4", "City 4", 4]]),
        (["profile", "-p", "user_id=nobody"], []),
        (
            ["orders_of_user", "-p", "user_id=u4", "-p", "status=paid"],
            [["o52", "paid", "Name 4"], ["o40", "paid", "Name 4"], ["o28", "paid", "Name 4"]],
        ),
        (
            ["orders_of_user", "-p", "user_id=u4", "-p", "since=2024-03-01T10:00:40Z"],
            [["o52", "paid", "Name 4"], ["o40", "paid", "Name 4"]],
        ),
        (["lines_of_order", "-p", "order_id=o1"], [[1, "s2", ["a", "b"]], [2, "s3", None]]),
        (["one_line", "-p", "order_id=o1", "-p", "line=2"], [["s3"]]),
        (["users", "-p", "ids=u3,nobody,u1"], [["u3", "Name 3"], ["u1", "Name 1"]]),
    ],
)
def test_both_sides_give_the_same_answer(shop: Shop, words: list[str], rows: list[list[Any]]) -> None:
    answer = shop.project.done("look", shop.job, "--pattern", *words, "--json").data
    assert answer["same"]
    (part,) = answer["parts"]
    assert part["items"] == part["rows"] == rows


def test_replay_queries_both_sides_and_finds_differences(shop: Shop) -> None:
    made = shop.project
    clean = made.done("shadow", "replay", shop.job, "--sample", "20", "--settle", "0", "--json").data
    assert len(clean["patterns"]) == PATTERNS
    made.done("doctor", shop.job)
    shop.tables.put(shop.real["Lines"], [{"order_id": "o1", "line": 1, "sku": "another"}])
    words = ("--pattern", "one_line", "--sample", "500", "--seed", "1", "--settle", "0")
    asked = ("shadow", "replay", shop.job, *words)
    assert made.run(*asked).code == 1
    made.done("relay", shop.job, "--once")
    made.done(*asked)
    made.done("report", shop.job)


def test_a_service_reads_the_old_tables_page_by_page(shop: Shop) -> None:
    made = shop.project
    made.job.write_text(json.dumps(json.loads(made.job.read_text()) | {"reads": {"cursor_key": "k" * 32}}))
    with Migration.load(shop.job) as migration:
        answer = migration.read("profile", user_id="u4")
        assert (answer, answer.origin) == ([{"name": "Name 4", "city": "City 4", "score": 4}], "sql")
        page = migration.read_page("lines_of_order", order_id="o1", size=1)
        assert [row["sku"] for row in page.items] == ["s2"]
        rest = migration.read_page("lines_of_order", order_id="o1", size=5, cursor=page.next)
        assert ([row["sku"] for row in rest.items], rest.next) == (["s3"], None)


ON_TABLE = ("BatchGetItem", "GetItem", "Query", "Scan")
ON_STREAM = ("DescribeStream", "GetRecords", "GetShardIterator")


@contextmanager
def behind_proxy(folder: Path, dynamodb_url: str) -> Iterator[tuple[Shop, Faults]]:
    faults = Faults()
    with FaultProxy(dynamodb_url, faults) as proxy, old_shop(folder, proxy.url) as made:
        yield made, faults
        faults.denied = frozenset()


def refused_of_old(shop: Shop) -> list[dict[str, str]]:
    """The doctor's checks of rights on old tables that do not pass."""
    checks = shop.project.run("doctor", shop.job, "--json").data["checks"]
    assert not [check for check in checks if "internal error" in check["what"]]
    return [
        check
        for check in checks
        if check["name"].startswith("permission ") and " of " in check["name"] and check["state"] != "ok"
    ]


@pytest.mark.parametrize("action", [*ON_TABLE, *ON_STREAM])
def test_doctor_names_a_denied_action_of_each_old_table(
    tmp_path: Path, dynamodb_url: str, action: str
) -> None:
    with behind_proxy(tmp_path, dynamodb_url) as (shop, faults):
        assert refused_of_old(shop) == []
        faults.denied = frozenset({action})
        refused = [check for check in refused_of_old(shop) if check["state"] == "failed"]
    names = {f"permission {action} of {real}" for real in shop.real.values()}
    of_index = {f"permission Query by_user of {shop.real['Orders']}"} if action == "Query" else set()
    assert {check["name"] for check in refused} == names | of_index
    for check in refused:
        assert f"allow dynamodb:{action} on " in check["mend"]
        assert check["name"].rpartition(" of ")[2] in check["mend"]


@pytest.mark.parametrize("role", sorted({*ROLES, *SQL_ROLES}))
def test_doctor_of_each_role_runs_on_old_tables(shop: Shop, role: str) -> None:
    ended = shop.project.run("doctor", shop.job, "--role", role, "--json")
    assert ended.code in (0, 1), ended.err
    failed = [check for check in ended.data["checks"] if check["state"] == "failed"]
    assert not [check for check in failed if " of " in check["name"]], failed


def test_doctor_warns_of_denied_streams_before_capture(tmp_path: Path, dynamodb_url: str) -> None:
    with behind_proxy(tmp_path, dynamodb_url) as (shop, faults):
        shop.project.done("capture", "uninstall", shop.job, "--force", "--discard-marks")
        faults.denied = frozenset({"GetRecords"})
        checks = refused_of_old(shop)
    assert {check["name"] for check in checks} == {
        f"permission GetRecords of {real}" for real in shop.real.values()
    }
    assert {check["state"] for check in checks} == {"warning"}
    assert "before `migrator capture install`" in checks[0]["mend"]
