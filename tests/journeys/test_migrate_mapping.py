"""`migrator migrate-mapping`: the way to another revision and back, by the command."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from migrator.dynamodb.client import dynamodb_client
from migrator.journal.writers import SqlChanges
from migrator.mapping.model.evidence import Move, PatternPhase, State
from tests import pins
from tests.journeys.command import Project
from tests.journeys.cutover import MAPPING, OTHER, change, cutover_shop, desk_of
from tests.support_worlds import prepared

INDEX = "ttl: expiresAt, indexes: {ByTotal: {key: [TotalPK, TotalSK]}}"
ENTRY = 'key: ["C#{customer_id}", "I#{id:06}"], ByTotal: [TOTAL, "{total:08}#{id:06}"]'
WITHOUT = MAPPING[: MAPPING.index("  invoice: {")] + MAPPING[MAPPING.index("access_patterns") :]
CHANGES = {
    "an attribute comes": MAPPING.replace(
        "keep: [name]", 'keep: [name], attributes: {shown: "{name|upper}"}'
    ),
    "a sort key is formed otherwise": MAPPING.replace("I#{id:06}", "I#{id:09}"),
    "an entity gets another key": MAPPING.replace("C#{customer_id}", "CUST#{customer_id}").replace(
        "C#{customer", "CUST#{customer"
    ),
    "an index comes": MAPPING.replace("ttl: expiresAt", INDEX).replace(
        'key: ["C#{customer_id}", "I#{id:06}"]', ENTRY
    ),
    "an entity goes": WITHOUT[: WITHOUT.index("  invoices_of_customer:")],
    "an entity gets another name": MAPPING.replace("  invoice: {", "  bill: {table: invoice, ").replace(
        "invoice.Invoice", "bill.Invoice"
    ),
    "some items go": MAPPING.replace(
        'Invoice: {key: ["C#{customer_id}", "I#{id:06}"]',
        'Invoice: {key: ["C#{customer_id}", "I#{id:06}"], when: {id: [1]}',
    ),
}
"""What each changes of the shop: 30 customers, 60 invoices."""
BY_TOTAL = (
    "  by_total: {params: {}, query: {index: ByTotal, key: [TOTAL]}, returns: [total], order: any,"
    " sql: 'SELECT total FROM invoice'}\n"
)
"""An access pattern that asks the index."""
WRITTEN = {
    "an attribute comes": {"Customer"},
    "an index comes": {"Invoice"},
    "a sort key is formed otherwise": {"Invoice"},
    "an entity gets another key": {"Invoice"},
    "an entity goes": set[str](),
    "an entity gets another name": {"Invoice"},
    "some items go": {"Invoice"},
}


CONTROL = 20
"""Write units at most of what the table is told of tickets."""


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    return cutover_shop(tmp_path, dynamodb_url)


def begun(made: Project) -> str:
    return str(prepared(made, "table create", "capture install", "backfill", "relay --once").job)


def write(made: Project, text: str) -> None:
    (made.folder / "mapping.yaml").write_text(text)


def items(made: Project) -> dict[tuple[str, str], Mapping[str, Any]]:
    """What callers see."""
    return {
        (str(item["PK"]), str(item["SK"])): item
        for item in made.items()
        if item["type"] in ("Customer", "Invoice")
    }


def meant(made: Project) -> dict[tuple[str, str], dict[str, Any]]:
    """The same without what is ours."""
    return {
        key: {name: value for name, value in item.items() if not name.startswith("_")}
        for key, item in items(made).items()
    }


def of_a_fresh_backfill(made: Project, folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """What the mapping in hand makes of the rows as they are, in an empty table, with a journal of its own."""
    folder.mkdir()
    for name in ("shop.db", "mapping.yaml"):
        shutil.copy(made.folder / name, folder / name)
    table = f"{made.table}{folder.name}"
    text = made.job.read_text().replace(made.table, table).replace(str(made.folder), str(folder))
    (folder / "shop.yaml").write_text(text)
    environment = made.environment | {"MIGRATOR_HOME": str(folder / ".migrator")}
    other = Project(folder, folder / "shop.yaml", table, made.endpoint, environment)
    for words in (["table", "create"], ["backfill"]):
        other.done(*words, str(other.job))
    return meant(other)


def indexes(made: Project) -> list[Any]:
    client = dynamodb_client(region=None, profile=None, endpoint=made.endpoint)
    table: dict[str, Any] = client.describe_table(TableName=made.table)["Table"]
    found: list[Any] = table.get("GlobalSecondaryIndexes", [])
    return found


def migrate(made: Project, *words: str, code: int = 0) -> str:
    ended = made.run("migrate-mapping", str(made.job), "--settle", "0", *words)
    assert ended.code == code, ended.out + ended.err
    return ended.out + ended.err


@pytest.mark.parametrize("change", CHANGES)
def test_a_job_goes_to_another_mapping_and_back(shop: Project, tmp_path: Path, change: str) -> None:
    job = begun(shop)
    before, tickets = meant(shop), {key: item["_tk"] for key, item in items(shop).items()}
    write(shop, CHANGES[change])
    dry = shop.run("migrate-mapping", job, "--dry-run", "--json")
    assert (dry.code, items(shop).keys()) == (1, before.keys())
    ended = shop.done("migrate-mapping", job, "--settle", "0", "--json")
    assert 0 <= units(ended.data["steps"]) - dry.data["units"] <= CONTROL, "tombstones are counted, too"
    assert (ended.data["rows"], ended.data["units"]) == (dry.data["rows"], units(ended.data["steps"]))
    assert ended.data["usd"] > 0
    after = items(shop)
    assert meant(shop) == of_a_fresh_backfill(shop, tmp_path / "fresh")
    assert shop.run("verify", job).code == 0
    written = {item["type"] for key, item in after.items() if item["_tk"] != tickets.get(key)}
    assert written == WRITTEN[change], "items of other types are not sent"
    assert pins.said(migrate(shop), "nothing")
    back = migrate(shop, "--go-back", "--yes")
    assert meant(shop) == before
    (older,) = shop.folder.glob("mapping.*.yaml")
    assert (older.read_text(), str(older.name) in back) == (MAPPING, True)
    seen = shop.items()
    twice = migrate(shop, "--go-back", "--yes")
    assert pins.said(twice, "back")
    assert pins.said(twice, "file", older=older)
    assert shop.items() == seen, "nothing is written"
    write(shop, MAPPING)
    assert shop.run("verify", job).code == 0


def units(steps: Sequence[Mapping[str, str]]) -> int:
    """Write units that the steps say they took."""
    counts = (re.search(r"([\d,]+) write units in this call", step["said"]) for step in steps)
    return sum(int(count[1].replace(",", "")) for count in counts if count)


# ── what is refused ──


def in_phase(made: Project, pattern: str, state: State) -> None:
    with desk_of(made) as session:
        before = session.phases.all().get(pattern, PatternPhase(pattern))
        session.phases.move(Move(pattern, before.state, state, "a test"), before.version)


def left_alone(made: Project) -> str:
    return str(made.run("capture", "status", str(made.job), "--json").data["mapping"])


def test_blocking_reasons_are_reported_before_any_change(shop: Project) -> None:
    begun(shop)
    before = items(shop)
    claimed = MAPPING.replace("I#{id:06}", "I#{customer_id:06}").replace("C#{customer_id}", "C#{total}")
    write(shop, claimed[: claimed.index("access_patterns")])
    assert pins.said(migrate(shop, code=2))
    write(shop, CHANGES["a sort key is formed otherwise"])
    in_phase(shop, OTHER, State("live"))
    refused = migrate(shop, code=1)
    assert f"pattern {OTHER}: it is in live, and" in refused
    assert (items(shop), left_alone(shop)) == (before, "new")
    assert "warning: pattern" in migrate(shop, "--force")


def test_begun_change_ends_before_another_mapping_takes_over(shop: Project) -> None:
    job = begun(shop)
    write(shop, CHANGES["an index comes"])
    shop.job.write_text(shop.job.read_text().replace("target: {", "target: {managed_elsewhere: true, "))
    stopped = migrate(shop, code=2)
    shop.job.write_text(shop.job.read_text().replace("managed_elsewhere: true, ", ""))
    assert pins.said(stopped, "missing")
    assert pins.said(stopped, "terraform", job=job)
    third = CHANGES["an attribute comes"]
    write(shop, third)
    for words in (["capture", "install"], ["relay", "--once"], ["backfill"]):
        refused = shop.run(*words, job)
        assert (refused.code, pins.said(refused.err, "way")) == (2, True), words
    assert pins.said(migrate(shop, code=2), "put")
    left = migrate(shop, "--go-back")
    assert pins.said(left, "works")
    assert pins.said(left, "unasked"), "no writer has worked by what it leaves"
    migrate(shop)
    assert all("shown" in item for item in items(shop).values() if item["type"] == "Customer")


def test_index_stays_until_its_removal_is_confirmed(shop: Project) -> None:
    write(shop, CHANGES["an index comes"])
    job = begun(shop)
    write(shop, MAPPING)
    assert pins.said(migrate(shop, code=1), "stays")
    assert indexes(shop)
    shop.done("table", "change", job, "--yes")
    assert pins.said(migrate(shop), "nothing")


def test_another_text_is_not_written_over(shop: Project) -> None:
    begun(shop)
    before = left_alone(shop)
    write(shop, CHANGES["an attribute comes"])
    migrate(shop)
    revision = shop.run("migrate-mapping", str(shop.job), "--go-back", "--dry-run", "--json").data["after"]
    older = shop.folder / f"mapping.{revision}.yaml"
    older.write_text("mine")
    assert pins.said(migrate(shop, "--go-back", code=2), older=older)
    assert (older.read_text(), left_alone(shop)) == ("mine", before)
    older.unlink()
    migrate(shop, "--go-back")
    assert older.read_text() == MAPPING
    assert not list(shop.folder.glob("*.unfinished"))


def test_a_job_without_capture_is_refused(shop: Project) -> None:
    for words in (["table", "create"], ["backfill"]):
        shop.done(*words, str(shop.job))
    write(shop, CHANGES["an index comes"])
    for words in ([], ["--dry-run"]):
        assert pins.said(migrate(shop, *words, code=2))
    assert not indexes(shop), "nothing was changed"


def test_change_over_the_cost_limit_is_refused_and_relays_run(shop: Project) -> None:
    job = begun(shop)
    shop.job.write_text(shop.job.read_text().replace("tuning: {", "tuning: {confirm_above: 0.00001, "))
    write(shop, CHANGES["an attribute comes"])
    assert pins.said(migrate(shop, code=2))
    assert left_alone(shop) == "new"
    write(shop, MAPPING)
    assert shop.run("relay", "--once", job).code == 0
    write(shop, CHANGES["an attribute comes"])
    migrate(shop, "--yes")


def test_going_back_is_held_to_live_patterns_like_going_forward(shop: Project) -> None:
    """Also where the change that it leaves was past that question."""
    begun(shop)
    write(shop, CHANGES["a sort key is formed otherwise"])
    migrate(shop)
    with desk_of(shop) as session:
        changes = SqlChanges(session.journal.database, session.job.name)
        last = changes.last()
        assert last is not None
        changes.advance(last, "unasked")
    in_phase(shop, OTHER, State("live"))
    assert f"pattern {OTHER}: it is in live, and" in migrate(shop, "--go-back", code=1)


def test_going_back_is_refused_while_its_index_serves_a_pattern(shop: Project) -> None:
    begun(shop)
    write(shop, f"{CHANGES['an index comes']}{BY_TOTAL}")
    migrate(shop)
    in_phase(shop, "by_total", State("live"))
    before = items(shop)
    refused = migrate(shop, "--go-back", "--yes", code=1)
    assert pins.said(refused, "total")
    assert pins.said(refused, "rollback", job=shop.job)
    assert (items(shop), len(indexes(shop))) == (before, 1)
    in_phase(shop, "by_total", State("off"))
    migrate(shop, "--go-back", "--yes")
    assert not indexes(shop)


def test_mapping_edited_during_a_change_stops_its_next_step(shop: Project) -> None:
    begun(shop)
    wanted = CHANGES["a sort key is formed otherwise"]
    write(shop, wanted)
    process = shop.start("migrate-mapping", str(shop.job), "--settle", "0", "--max-write-units", "5")
    while not (line := process.stdout.readline()).startswith("2/6"):  # type: ignore[union-attr]
        assert line, "the command ended before its items"
    write(shop, CHANGES["an attribute comes"])
    out, error = process.communicate(timeout=120)
    assert process.returncode == 2, out + error
    assert pins.said(error)
    assert "5/6" not in out
    write(shop, wanted)
    assert "6/6 unasked" in migrate(shop)
    assert all("shown" not in item for item in items(shop).values())


def killed_in_the_middle(made: Project, *words: str) -> None:
    """The command, killed when some of its 60 invoices have moved."""
    process = made.start("migrate-mapping", str(made.job), "--max-write-units", "10", *words)
    moved: set[str] = set()
    while not moved and process.poll() is None:
        moved = {sort for _, sort in items(made) if len(sort) == len("I#000000001")}
    process.kill()
    process.communicate()
    assert 0 < len(moved) < 60, "in the middle"


def test_a_change_that_is_killed_in_the_middle_goes_back_or_on(shop: Project, tmp_path: Path) -> None:
    shop.job.write_text(shop.job.read_text().replace("tuning: {", "tuning: {page_rows: 5, "))
    begun(shop)
    before = meant(shop)
    write(shop, CHANGES["a sort key is formed otherwise"])
    killed_in_the_middle(shop)
    migrate(shop, "--go-back")
    assert meant(shop) == before
    assert f"run `migrator migrate-mapping {shop.job} --restart" in migrate(shop, code=2)
    killed_in_the_middle(shop, "--restart")
    said = migrate(shop)
    assert pins.said(said)
    assert "1/6" not in said, "it goes on with the step that it was in"
    assert meant(shop) == of_a_fresh_backfill(shop, tmp_path / "fresh")


def test_relay_after_go_back_uses_the_journals_mapping(shop: Project) -> None:
    job = begun(shop)
    write(shop, CHANGES["a sort key is formed otherwise"])
    migrate(shop)
    migrate(shop, "--go-back")
    change(shop, "UPDATE invoice SET total = 77 WHERE id = 2")
    said = shop.done("relay", job, "--once")
    assert f"{shop.folder}/mapping.yaml: the job has gone back" in said.err
    write(shop, MAPPING)
    assert "warning" not in shop.done("relay", job, "--once").err
    assert "clean" in shop.done("verify", job, "--settle", "0").out
    assert {item["total"] for item in meant(shop).values() if item.get("id") == 2} == {77}


def test_marks_of_the_previous_mapping_are_acknowledged(shop: Project) -> None:
    job = begun(shop)
    change(shop, "UPDATE invoice SET total = 77 WHERE id = 2")
    write(shop, CHANGES["an entity goes"])
    migrate(shop)
    state = shop.done("relay", job, "--dry-run", "--json").data
    assert (state["waiting"], state["failed"]) == (0, 0)
    shop.done("relay", job, "--once")


def test_rows_that_stay_different_end_the_command_with_keys(
    shop: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(shop)
    write(shop, CHANGES["a sort key is formed otherwise"])
    change(shop, "UPDATE customer SET name = 'Zoe' WHERE id = 2")
    with monkeypatch.context() as once:
        once.setattr("migrator.mapping.difference.steps.ROUNDS", 0)
        said = migrate(shop, code=1)
    assert "different: customer" in said
    assert "Zoe" not in said
    migrate(shop)
