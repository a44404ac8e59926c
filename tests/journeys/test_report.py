"""`migrator report` over a small shop: what it says before, of a clean table, and of a spoiled one."""

from __future__ import annotations

import json
import re
import secrets
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests import pins
from tests.journeys.command import Project, project
from tests.support_items import put_items

# One worker fills the table once.
pytestmark = pytest.mark.xdist_group("report")

EMAIL = f"ann{secrets.token_hex(6)}@example.com"
MAPPING = """\
mapping: 1
table: {name: Shop, key: [PK, SK], type: type, indexes: {GSI1: {key: [GSI1PK]}}}
entities:
  customer:
    items:
      Customer:
        key: ["C#{id}", META]
        GSI1: ["MAIL#{email|lower}"]
        keep: [name, email]
        attributes: {contact: "{name} <{email}>"}
  invoice:
    join: {buyer: customer_id}
    items:
      Invoice:
        key: ["C#{customer_id}", "I#{id:04}"]
        keep: [total]
        attributes: {invoiceId: id, mailedTo: buyer.email}
        when: customer_id
access_patterns:
  get_customer:
    params: {id: integer}
    get: {key: ["C#{id}", META]}
    returns: [name, email]
    sql: SELECT name, email FROM customer WHERE id = :id
    redact: [email]
  invoices_of:
    params: {id: integer, since: optional integer}
    query: {key: ["C#{id}", {between: ["I#{since:04|or:''}", "I#~"]}]}
    returns: [invoiceId, total]
    sql: SELECT id, total FROM invoice WHERE customer_id = :id AND id >= coalesce(:since, 0) ORDER BY id
  by_mail:
    params: {email: text}
    query: {index: GSI1, key: ["MAIL#{email|lower}"]}
    returns: [name]
    sql: SELECT name FROM customer WHERE lower(email) = lower(:email)
    redact: [email]
"""
TABLES = """
CREATE TABLE customer (id INTEGER PRIMARY KEY, name VARCHAR(50) NOT NULL, email VARCHAR(80) NOT NULL);
CREATE TABLE invoice (
  id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customer (id), total NUMERIC(9, 2) NOT NULL
);
"""
HOSTILE = "<script>alert(1)</script>"


def shop_in(folder: Path, endpoint: str) -> Project:
    with closing(sqlite3.connect(folder / "source.db")) as source:
        source.executescript(TABLES)
        names = [
            (n, HOSTILE if n == 1 else f"Name {n}", EMAIL if n == 1 else f"x{n}@x.example")
            for n in range(1, 13)
        ]
        source.executemany("INSERT INTO customer VALUES (?, ?, ?)", names)
        invoices = [(n, n % 12 + 1, 100 * n + 5) for n in range(1, 37)]
        source.executemany("INSERT INTO invoice VALUES (?, ?, ?)", invoices)
        source.commit()
    url = f"sqlite:///{folder}/source.db"
    return project(folder, url, endpoint, f"R{secrets.token_hex(4)}", text=MAPPING)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, dynamodb_url: str) -> Project:
    """Filled, verified and replayed, nothing wrong yet."""
    made = shop_in(tmp_path_factory.mktemp("report"), dynamodb_url)
    made.prepared("table create", "backfill", "verify")
    made.done("shadow", "replay", str(made.job), "--sample", "8", "--seed", "1", "--settle", "0s")
    return made


@pytest.fixture(scope="module")
def spoiled(shop: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The shop in a folder of its own, after cents were written as whole ones and a customer was lost."""
    items = {(item["PK"], item["SK"]): item for item in shop.items()}
    invoices = [dict(item) for key, item in items.items() if str(key[1]).startswith("I#")]
    put_items(shop.store(), [{**item, "total": item["total"] * 100} for item in invoices])  # type: ignore[operator]
    put_items(shop.store(), [{**items["C#1", "META"], "email": "eve@example.com"}])
    shop.store().delete([("C#5", "META")])
    assert shop.run("verify", str(shop.job)).code == 1
    words = ("--sample", "30", "--seed", "1", "--settle", "0s")
    assert shop.run("shadow", "replay", str(shop.job), *words).code == 1
    return shop


def test_before_any_run_it_names_the_first_command(tmp_path: Path, dynamodb_url: str) -> None:
    made = shop_in(tmp_path, dynamodb_url)
    ended = made.run("report", str(made.job), "--out", str(tmp_path / "r.html"))
    assert ended.code == 2
    assert pins.said(ended.err)
    assert not (tmp_path / "r.html").exists()


def test_clean_table_is_reported_with_the_next_command(shop: Project) -> None:
    data = shop.done("report", str(shop.job), "--json").data
    assert data["verdict"]["standing"] == "clean", data["verdict"]
    assert data["verdict"]["command"] == pins.text(job=shop.job)
    assert data["groups"] == []
    assert data["never_compared"] == []
    assert {one["name"]: one["compared"] for one in data["patterns"]} == {
        "get_customer": 8,
        "invoices_of": 8,
        "by_mail": 8,
    }
    kinds = {tuple(kind["parameters"]) for one in data["patterns"] for kind in one["coverage"]}
    assert kinds == {(), ("since",)}
    assert {run["kind"]: run["current"] for run in data["runs"]} == {"backfill": None, "verify": True}
    spans = data["work"]["spans"]
    assert sum(span["items"] for span in spans) == 48
    assert sum(span["write_units"] for span in spans) >= 48
    assert all(one["units"] > 0 for one in data["costs"]["patterns"])
    largest = data["costs"]["largest"][0]
    assert (largest["index"], largest["entries"], largest["exact"]) == ("", 48, True)
    table, index = data["views"]
    assert [facet["type"] for facet in table["facets"]] == ["Customer", "Invoice"]
    assert [facet["type"] for facet in index["facets"]] == ["Customer"]
    assert table["facets"][1]["keys"] == {"PK": "C#{customer_id}", "SK": "I#{id:04}"}


def test_every_kind_of_difference_is_grouped_with_its_cause(spoiled: Project) -> None:
    data = spoiled.done("report", str(spoiled.job), "--json", "--show-values").data
    assert data["verdict"]["standing"] == "different"
    assert data["verdict"]["command"] == f"migrator backfill {spoiled.job} --restart"
    groups = {(one["where"], one["kind"], one["attribute"]): one for one in data["groups"]}
    units = "the item is 100 times SQL's: another unit, such as cents and dollars"
    for place in (("invoices_of", "value", "total"), ("invoice", "different", "total")):
        assert groups[place]["cause"] == units
    assert groups["invoice", "different", "total"]["count"] == 36
    assert groups["customer", "missing", ""]["count"] == 1
    assert pins.said(groups["get_customer", "missing", ""]["cause"])
    example = groups["invoice", "different", "total"]["differences"][0]
    cells = {cell["attribute"]: cell for cell in example["cells"]}
    assert [name for name, cell in cells.items() if cell["differs"]] == ["total"]
    assert float(cells["total"]["item"]) == 100 * float(cells["total"]["sql"])
    assert str(spoiled.job) in groups["customer", "missing", ""]["advice"]


def test_what_is_redacted_is_nowhere(spoiled: Project, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    spoiled.done("report", str(spoiled.job), "--out", str(page), "--show-values")
    forms = [
        page.read_text(encoding="utf-8"),
        spoiled.done("report", str(spoiled.job)).out,
        spoiled.done("report", str(spoiled.job), "--show-values").out,
        spoiled.done("report", str(spoiled.job), "--json", "--show-values").out,
        spoiled.done("report", str(spoiled.job), "--json", "--show-keys").out,
    ]
    for form in forms:
        assert "example.com" not in form
        assert EMAIL.partition("@")[0] not in form
        assert "…" in form or "\\u2026" in form
        assert "get_customer" in form
    assert HOSTILE not in forms[0]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in forms[0]


def test_values_are_masked_unless_samples_are_requested(spoiled: Project, tmp_path: Path) -> None:
    page, job = tmp_path / "page.html", str(spoiled.job)
    told = spoiled.done("report", job, "--out", str(page)).out + spoiled.done("report", job).out
    told += spoiled.done("report", job, "--json").out + page.read_text(encoding="utf-8")
    assert not re.search(r"Name \d|alert\(1\)", told)
    assert "Name 5" in spoiled.done("report", job, "--show-values").out
    assert "--show-values shows them" in told


def test_one_thing_has_one_number(spoiled: Project) -> None:
    data = spoiled.done("report", str(spoiled.job), "--json").data
    runs = {run["kind"]: run["findings"] for run in data["runs"]}
    counted: dict[str, int] = {}
    for one in data["groups"]:
        if one["found_by"] == ["verify"]:
            counted[one["kind"]] = counted.get(one["kind"], 0) + one["count"]
    assert counted == runs["verify"]
    answers = sum(one["different"] for one in data["patterns"])
    totals = counted.pop("count", 0) + counted.pop("sum", 0)
    assert totals == 1
    assert [
        reason.split(" in ")[0].split(", of ")[0].rstrip(",") for reason in data["verdict"]["reasons"][:2]
    ] == [
        pins.text("difference", values=sum(counted.values()), totals=totals),
        pins.text("differ", answers=answers),
    ]


def test_without_samples_no_value_of_a_row_is_shown(spoiled: Project) -> None:
    out = spoiled.done("report", str(spoiled.job), "--json", "--no-values").out
    assert "Name 5" not in out
    assert "alert(1)" not in out
    data = json.loads(out)
    assert all(not one["cells"] for group in data["groups"] for one in group["differences"])
    assert all(not view["collections"] for view in data["views"])
    assert data["groups"]


def test_the_terminal_has_the_same_parts_in_the_same_order(spoiled: Project) -> None:
    out = spoiled.done("report", str(spoiled.job)).out
    titles = (
        "Access patterns",
        "Differences",
        "Over time",
        "Latency",
        "Costs",
        "Lag and runs",
        "Coverage",
        "Item collections",
    )
    places = [out.index(f"\n{title}\n") for title in titles]
    assert places == sorted(places)
    assert out.splitlines()[-1].startswith("not clean: ")
    assert re.search(r"» total +\S+ +\S+", out)
    assert "\x1b" not in out


def test_older_report_is_replaced_whole_by_an_owner_only_file(spoiled: Project, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("old")
    ended = spoiled.done("report", str(spoiled.job), "--out", str(page))
    assert "Differences stand" in ended.err
    assert ended.out == ""
    assert page.read_text(encoding="utf-8").rstrip().endswith("</html>")
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]
    assert page.stat().st_mode & 0o777 == 0o600


def test_other_mapping_outdates_evidence_of_changed_answers(spoiled: Project) -> None:
    path = spoiled.folder / "mapping.yaml"
    written = MAPPING.replace('"MAIL#{email|lower}"', '"MAIL2#{email|lower}"')
    path.write_text(
        written.replace("attributes: {invoiceId: id,", "attributes: {invoiceId: id, owner: customer_id,")
    )
    try:
        data = spoiled.done("report", str(spoiled.job), "--json").data
    finally:
        path.write_text(MAPPING)
    # The new attribute is in no answer; the index's key is what one pattern asks by.
    assert data["never_compared"] == ["by_mail"]
    assert {one["name"] for one in data["patterns"] if one["outdated"]} == {"by_mail"}
    (verify,) = [run for run in data["runs"] if run["kind"] == "verify"]
    assert verify["current"] is False


def test_unreachable_source_or_table_is_reported_and_rest_shown(spoiled: Project, tmp_path: Path) -> None:
    job = spoiled.job.read_text()
    (tmp_path / "mapping.yaml").write_text(MAPPING)
    away = tmp_path / "shop.yaml"
    journal = f"journal: 'sqlite:///{spoiled.folder}/.migrator/shop.db'\n"
    away.write_text(journal + job.replace(spoiled.endpoint, "http://127.0.0.1:1"))
    began = time.monotonic()
    data = spoiled.done("report", str(away), "--json").data
    assert pins.said(data["notes"], "table")
    assert data["groups"]
    spoiled.environment["MIGRATOR_SOURCE_URL"], before = (
        "postgresql://nobody@127.0.0.1:1/nothing",
        spoiled.environment["MIGRATOR_SOURCE_URL"],
    )
    try:
        spoiled.done("recover", str(away), "renamed")
        data = spoiled.done("report", str(away), "--json").data
    finally:
        spoiled.environment["MIGRATOR_SOURCE_URL"] = before
    assert pins.said(data["notes"], "source")
    assert data["lag"]["reason"]
    assert data["groups"]
    assert time.monotonic() - began < 120


def test_differences_before_a_repair_are_history_and_new_count(
    spoiled: Project,
) -> None:
    job = str(spoiled.job)
    # The journal's clock for runs has whole seconds; a verify of the second in which a replay ended is not after it.
    spoiled.pass_time(1.0)
    spoiled.done("backfill", job, "--restart")
    spoiled.done("verify", job)
    verdict = spoiled.done("report", job, "--json").data["verdict"]
    assert verdict["standing"] == "unproven"
    assert pins.said(verdict["reasons"][0], "compared")
    words = ("--sample", "30", "--seed", "1", "--settle", "0s")
    spoiled.done("shadow", "replay", job, *words)
    data = spoiled.done("report", job, "--json").data
    assert data["verdict"]["standing"] == "clean", data["verdict"]
    mended = sum(one["mended"] for one in data["patterns"])
    assert mended == sum(one["different"] for one in data["patterns"]) > 0
    assert data["verdict"]["reasons"][1] == pins.text("differed", mended=mended)
    assert {one["before_verify"] for one in data["groups"]} == {True}
    spoiled.store().delete([("C#5", "META")])
    assert spoiled.run("shadow", "replay", job, *words).code == 1
    data = spoiled.done("report", job, "--json").data
    assert data["verdict"]["standing"] == "different"
    new = [one for one in data["groups"] if not one["before_verify"]]
    assert {one["kind"] for one in new} == {"missing"}
    assert "get_customer" in {one["where"] for one in new}


# ── wrong use ──


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["--since", "yesterday"], id="since"),
        pytest.param(["--since", "0h"], id="no-time"),
        pytest.param(["--out", "{folder}"], id="folder"),
        pytest.param(["--out", "{folder}/no/such/page.html"], id="no-folder"),
        pytest.param(["--out", "{folder}/" + "x" * 300], id="long-name"),
    ],
)
def test_wrong_use_is_reported(shop: Project, tmp_path: Path, words: list[str]) -> None:
    ended = shop.run("report", str(shop.job), *(word.replace("{folder}", str(tmp_path)) for word in words))
    assert ended.code == 2
    assert pins.said(ended.err, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_unwritable_folder_is_reported(shop: Project) -> None:
    ended = shop.run("report", str(shop.job), "--out", "/proc/page.html")
    assert ended.code == 2
    assert "/proc" in ended.err
    assert pins.said(ended.err)
