"""A mapping that changes on the way, by the command: what a new revision changes and takes, and the indexes of its table."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.conditional import ConditionalWrites
from migrator.mapping.model.evidence import Move, PatternPhase, State
from migrator.runtime.values import replace
from tests import pins
from tests.journeys.command import Project
from tests.journeys.cutover import (
    MAPPING,
    OTHER,
    PATTERN,
    change,
    cutover_shop,
    desk_of,
    filled,
    reader,
    revision,
)
from tests.support_items import write_items

INDEX = "ttl: expiresAt, indexes: {ByTotal: {key: [TotalPK, TotalSK]}}"
ENTRY = 'key: ["C#{customer_id}", "I#{id:06}"], ByTotal: [TOTAL, "{total:08}#{id:06}"]'
GROWN = MAPPING.replace("ttl: expiresAt", INDEX).replace('key: ["C#{customer_id}", "I#{id:06}"]', ENTRY)
SOURCE = ("--source", "sqlite:///shop.db", "--region", "us-east-1")


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    return cutover_shop(tmp_path, dynamodb_url)


def write(made: Project, text: str, name: str = "mapping.yaml") -> None:
    (made.folder / name).write_text(text)


def git(made: Project, *words: str) -> None:
    own = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *own, *words], cwd=made.folder, check=True, capture_output=True)


def diff(made: Project, old: str, *words: str, code: int = 1) -> str:
    ended = made.run("mapping", "diff", old, "mapping.yaml", *words)
    assert ended.code == code, ended.out + ended.err
    return ended.out + ended.err


# ── mapping diff ──


def test_revision_of_git_is_compared_by_its_meaning(shop: Project) -> None:
    git(shop, "init", "-q", "-b", "main")
    git(shop, "add", "mapping.yaml")
    git(shop, "commit", "-q", "-m", "first")
    write(shop, MAPPING.replace("mapping: 1\n", "mapping: 1\n# a word on it\n"))
    assert pins.said(diff(shop, "git:HEAD", code=0), "mean")
    write(shop, GROWN)
    for old in ("git:HEAD", "git:main:mapping.yaml", "git:main:./mapping.yaml"):
        said = diff(shop, old)
        assert "entry of ByTotal: new, TOTAL + {total:08}#{id:06}" in said
        assert "index ByTotal: new, TotalPK + TotalSK, projects all; an index to add" in said
    assert pins.said(diff(shop, "git:nowhere", code=2), "git")
    assert pins.said(diff(shop, "git:--output=x", code=2), "revision")


def test_what_it_takes_is_counted_on_the_rows(shop: Project) -> None:
    write(shop, MAPPING, "older.yaml")
    write(shop, GROWN.replace("keep: [name]", 'attributes: {name: name, shown: "{name|upper}"}'))
    data = json.loads(diff(shop, "older.yaml", *SOURCE, "--json"))
    assert data["work"]["rows"] == {"customer": 30, "invoice": 60}
    of_types = {one["type"]: one for one in data["work"]["types"]}
    # Items below 1 KB: a unit for the insert that fails, one for the put, and of an invoice one for the entry that comes.
    assert {name: (one["written"], one["taken_away"], one["units"]) for name, one in of_types.items()} == {
        "Customer": (30, 0, 60),
        "Invoice": (60, 0, 180),
    }
    assert (data["work"]["units"], data["work"]["exact"]) == (240, True)
    assert data["work"]["usd"] > 0
    commands = [step["command"].removeprefix("migrator ") for step in data["steps"]]
    assert commands == [
        "table change JOB",
        "capture install JOB",
        "backfill JOB --entity customer --entity invoice",
        "verify JOB --repair",
    ]
    assert data["schema"]["needs_install"] is False


def written_beside_a_relay(made: Project, type_: str) -> float:
    """Write units, by what the table says, of writing all items of a type anew as a backfill beside a relay does."""
    store = made.store()
    store.design = replace(store.design, type_attribute="type")
    anew = [{**item, "_tk": 2 * 10**12} for item in made.items() if item["type"] == type_]
    outcomes = write_items(ConditionalWrites(store), anew, fresh=True)
    assert {outcome.verdict for outcome in outcomes} == {"stored"}
    return sum(units for (kind, *_), units in store.sent.consumed.items() if kind == "write")


def test_diff_units_equal_those_of_a_concurrent_backfill(shop: Project) -> None:
    job = str(shop.job)
    for words in BEFORE_ALL:
        shop.done(*words, job)
    write(shop, MAPPING, "older.yaml")
    write(shop, MAPPING.replace("keep: [name]", 'attributes: {name: name, shown: "{name|upper}"}'))
    said = json.loads(diff(shop, "older.yaml", *SOURCE, "--json"))["work"]["units"]
    assert (said, written_beside_a_relay(shop, "Customer")) == (60, 60)


def test_items_that_move_are_written_and_taken_away(shop: Project) -> None:
    write(shop, MAPPING, "older.yaml")
    write(shop, MAPPING.replace("I#{id:06}", "I#{id:09}"))
    data = json.loads(diff(shop, "older.yaml", *SOURCE, "--json"))
    (invoice,) = data["work"]["types"]
    assert (invoice["effect"], invoice["written"], invoice["taken_away"], invoice["units"]) == (
        "moved",
        60,
        60,
        120,
    )
    assert {one["name"]: one["answer_changes"] for one in data["patterns"]} == {OTHER: True}


def test_revisions_claiming_one_key_for_two_rows_are_refused(shop: Project) -> None:
    write(shop, MAPPING, "older.yaml")
    # Customer 5 of the one, who is the customer before him of the other.
    edits = 'key: ["C#{total}", "I#{id:06}"], attributes: {id: id}, keep: [customer_id]'
    text = MAPPING.replace(
        'key: ["C#{customer_id}", "I#{id:06}"], attributes: {id: id}, keep: [total]', edits
    )
    write(shop, text.partition("access_patterns")[0])
    assert "of another row" not in diff(shop, "older.yaml", *SOURCE), "the sort key names the row"
    write(shop, text.replace("I#{id:06}", "I#{customer_id:06}").partition("access_patterns")[0])
    said = diff(shop, "older.yaml", *SOURCE, code=2)
    assert pins.said(said)


def test_faults_of_either_file_are_reported(shop: Project) -> None:
    write(shop, MAPPING.replace("{id}", "{id|nothing}"), "older.yaml")
    assert "older.yaml:" in diff(shop, "older.yaml", code=2)


# ── table change ──


def indexes(made: Project) -> set[str]:
    client = dynamodb_client(region=None, profile=None, endpoint=made.endpoint)
    table = client.describe_table(TableName=made.table)["Table"]
    return {one["IndexName"] for one in table.get("GlobalSecondaryIndexes") or []}


def test_new_revision_with_an_added_index_and_its_rollback(shop: Project) -> None:
    job = str(shop.job)
    shop.prepared("table create", "capture install", "backfill", "verify")
    write(shop, MAPPING, "older.yaml")
    write(shop, GROWN)
    assert pins.said(shop.run("backfill", job).err, "missing")
    dry = shop.run("table", "change", job, "--dry-run")
    assert (dry.code, indexes(shop)) == (1, set())
    assert '"Create": {"IndexName": "ByTotal"' in dry.out
    assert "# index ByTotal" in shop.run("table", "change", job, "--as", "terraform").out
    assert (indexes(shop), shop.run("table", "change", job).code) == (set(), 0)
    assert indexes(shop) == {"ByTotal"}
    assert pins.said(shop.done("table", "change", job).out, "indexes")

    # The steps that `mapping diff` says.
    shop.done("capture", "install", job)
    shop.done("backfill", job, "--entity", "invoice")
    shop.done("verify", job)
    client = dynamodb_client(region=None, profile=None, endpoint=shop.endpoint)
    asked = {"KeyConditionExpression": "TotalPK = :p", "ExpressionAttributeValues": {":p": {"S": "TOTAL"}}}
    assert client.query(TableName=shop.table, IndexName="ByTotal", **asked)["Count"] == 60

    write(shop, MAPPING)
    refused = shop.run("table", "change", job, "--yes")
    assert (refused.code, indexes(shop)) == (2, {"ByTotal"})
    assert pins.said(refused.err, "newest")
    shop.done("recover", job, "older-mapping")
    shop.done(
        "backfill", job, "--entity", "invoice"
    )  # an index that the mapping does not have hinders nobody
    left = shop.run("table", "change", job)
    assert (left.code, indexes(shop)) == (1, {"ByTotal"})
    assert "--yes removes it" in left.out
    assert "1 removed" in shop.done("table", "change", job, "--yes").out
    assert indexes(shop) == set()
    shop.done("verify", job)


def test_an_index_is_not_removed_while_a_service_of_before_reads(shop: Project) -> None:
    job = str(shop.job)
    write(shop, GROWN)
    shop.done("table", "create", job)
    with desk_of(shop) as session:
        of_before = reader(session, shop)
    write(shop, MAPPING)
    refused = shop.run("table", "change", job, "--yes")
    assert (refused.code, indexes(shop)) == (2, {"ByTotal"})
    assert "shop-api 1 on" in refused.err
    with desk_of(shop) as session:
        session.instances.leave(of_before)
        session.phases.move(Move("by_total", PatternPhase("by_total").state, State("live"), "a test"), 0)
    assert pins.said(shop.run("table", "change", job, "--yes").err)
    shop.done("cutover", "rollback", job, "by_total")
    shop.done("table", "change", job, "--yes")
    assert indexes(shop) == set()


def test_unalterable_part_is_reported_with_a_workaround(shop: Project) -> None:
    job = str(shop.job)
    write(shop, GROWN)
    shop.done("table", "create", job)
    write(shop, GROWN.replace("[TotalPK, TotalSK]}", "[TotalPK, TotalSK], project: keys}"))
    ended = shop.run("table", "change", job, "--json")
    assert (ended.code, ended.data["added"], [one["index"] for one in ended.data["cannot"]]) == (
        1,
        [],
        ["ByTotal"],
    )
    assert pins.said(ended.data["cannot"][0]["why"])


# ── the steps that `mapping diff` says, taken ──


def steps(made: Project) -> list[str]:
    data = json.loads(diff(made, "older.yaml", *SOURCE, "--json"))
    return [step["command"].removeprefix("migrator ").replace("JOB", str(made.job)) for step in data["steps"]]


def take(made: Project, command: str) -> None:
    """The step, and the relay for what it marks."""
    words = command.split()
    if words[0] == "verify":
        made.run(*words)
        made.done("relay", str(made.job), "--once")
    elif words[0] != "shadow":
        made.done(*words, *(["--yes"] if words[0] == "clean" else []))


def fresh(made: Project) -> list[tuple[str, str]]:
    """The keys of what the mapping in hand makes."""
    shop = {
        (str(item["PK"]), str(item["SK"])) for item in made.items() if item["type"] in ("Customer", "Invoice")
    }
    return sorted(shop)


@pytest.mark.parametrize("change", ["an entity goes", "items move", "a type goes", "an attribute"])
def test_the_steps_bring_the_table_to_the_new_revision_and_back(shop: Project, change: str) -> None:
    job = str(shop.job)
    without = MAPPING[: MAPPING.index("  invoice: {")] + MAPPING[MAPPING.index("access_patterns") :]
    texts = {
        "an entity goes": without[: without.index("  invoices_of_customer:")],
        "items move": MAPPING.replace("I#{id:06}", "I#{id:09}"),
        "a type goes": MAPPING.replace(
            'Invoice: {key: ["C#{customer_id}", "I#{id:06}"]',
            'Invoice: {key: ["C#{customer_id}", "I#{id:06}"], when: {id: [1]}',
        ),
        "an attribute": MAPPING.replace("keep: [name]", 'keep: [name], attributes: {shown: "{name|upper}"}'),
    }
    shop.prepared("table create", "capture install", "backfill", "verify")
    before = fresh(shop)
    for old, new in ((MAPPING, texts[change]), (texts[change], MAPPING)):
        write(shop, old, "older.yaml")
        write(shop, new)
        for command in steps(shop):
            back = new == MAPPING and command.startswith("capture install")
            take(shop, f"recover {job} older-mapping" if back else command)
        clean = shop.run("verify", job)
        assert clean.code == 0, clean.out
    assert fresh(shop) == before


def test_items_of_a_removed_entity_are_deleted_by_newest_mapping(shop: Project) -> None:
    job = str(shop.job)
    shop.prepared("table create", "capture install", "backfill")
    without = MAPPING[: MAPPING.index("  invoice: {")] + MAPPING[MAPPING.index("access_patterns") :]
    write(shop, without[: without.index("  invoices_of_customer:")])
    undo = ("clean", "--all-items", job, "--entity", "invoice", "--yes")
    refused = shop.run(*undo)
    assert (refused.code, pins.said(refused.err, "works")) == (2, True)
    shop.done("capture", "install", job)
    with desk_of(shop) as session:
        session.phases.move(Move(OTHER, PatternPhase(OTHER).state, State("live"), "a test"), 0)
    assert pins.said(shop.run(*undo).err, "callers", other=OTHER)
    shop.done("cutover", "rollback", job, OTHER)
    assert pins.said(shop.run("clean", "--all-items", job, "--entity", "pet", "--yes").err, "did")
    shop.done(*undo)
    shop.done("verify", job)


# ── patterns that DynamoDB answers ──

BEFORE_ALL = (["table", "create"], ["capture", "install"], ["backfill"])
MOVED = MAPPING.replace("I#{id:06}", "I#{id:09}")


def in_phase(made: Project, **phases: State) -> None:
    with desk_of(made) as session:
        for pattern, state in phases.items():
            before = session.phases.all().get(pattern, PatternPhase(pattern))
            session.phases.move(Move(pattern, before.state, state, "a test"), before.version)


def standing(made: Project) -> str:
    return str(made.run("capture", "status", str(made.job), "--json").data["mapping"])


@pytest.mark.parametrize("words", [("capture", "install"), ("backfill",), ("relay", "--once")])
@pytest.mark.parametrize(
    "state", [State("ramp", 10), State("live"), State("complete")], ids=lambda state: state.phase
)
def test_job_does_not_advance_while_dynamodb_answers_changes(
    shop: Project, words: tuple[str, ...], state: State
) -> None:
    job = str(shop.job)
    for before in BEFORE_ALL:
        shop.done(*before, job)
    in_phase(shop, **{OTHER: state, PATTERN: State("live")})
    write(shop, MOVED)
    refused = shop.run(*words, job)
    assert (refused.code, standing(shop)) == (1, "new"), refused.err
    assert pins.said(refused.err, "answer", other=OTHER, word=state.word)
    assert pins.said(refused.err, "rollback", job=job, other=OTHER)
    assert PATTERN not in refused.err, "its answer stays as it is"
    forced = shop.done(*words, job, "--force")
    assert "warning: pattern" in forced.err
    assert standing(shop) == "newest"


def test_it_resumes_once_sql_answers(shop: Project) -> None:
    job = str(shop.job)
    for before in BEFORE_ALL:
        shop.done(*before, job)
    in_phase(shop, **{OTHER: State("live"), PATTERN: State("live")})
    without = MAPPING[: MAPPING.index(f"  {OTHER}:")]
    write(shop, without.replace("keep: [total]", "keep: [total, customer_id]"))
    refused = shop.run("capture", "install", job)
    assert (refused.code, standing(shop)) == (1, "new")
    assert pins.said(refused.err, "live", other=OTHER)
    shop.done("cutover", "rollback", job, OTHER)
    assert "warning: pattern" not in shop.done("capture", "install", job).err
    assert standing(shop) == "newest"
    write(shop, MAPPING.replace("keep: [name]", 'attributes: {name: "{name|upper}"}'))
    assert pins.said(shop.run("relay", "--once", job).err, "rollback", job=job, pattern=PATTERN)
    assert standing(shop) == "new"


def test_a_column_that_comes_stops_no_relay_of_the_same_mapping(shop: Project) -> None:
    job = str(shop.job)
    write(shop, MAPPING.replace("keep: [name]", "keep: all"))
    for before in BEFORE_ALL:
        shop.done(*before, job)
    in_phase(shop, **{PATTERN: State("live")})
    change(shop, "ALTER TABLE customer ADD COLUMN city TEXT")
    shop.done("capture", "install", job)
    shop.done("relay", job, "--once")
    assert standing(shop) == "newest"


def test_atomic_groups_are_part_of_the_writers_revision(shop: Project) -> None:
    """A relay that knows nothing of a group writes its items one by one."""
    job = str(shop.job)
    for before in BEFORE_ALL:
        shop.done(*before, job)
    write(shop, MAPPING.replace(f"  {OTHER}:\n", f"  {OTHER}:\n    atomic: true\n"))
    assert standing(shop) == "new"
    shop.done("relay", job, "--once")
    assert standing(shop) == "newest"
    write(shop, MAPPING)
    assert shop.run("relay", job, "--once").code == 2


def test_rewritten_mapping_with_equal_meaning_is_unchanged(shop: Project) -> None:
    job = str(shop.job)
    for before in BEFORE_ALL:
        shop.done(*before, job)
    in_phase(shop, **{PATTERN: State("live")})
    for text in (MAPPING.replace("keep: [name]", "attributes: {name: name}"), MAPPING):
        write(shop, text)
        assert standing(shop) == "newest"
        assert "the job switches" not in shop.done("relay", "--once", job).err
    with desk_of(shop) as session:
        newest = session.newest()
        assert newest is not None
        assert newest.revision.mapping == revision(shop)


# ── one gate at every door ──

_REFUSED = {
    "the table has another key": ("key: [PK, SK]", "key: [PK, SORT]"),
    "types stand elsewhere": ("type: type", "type: kind"),
}


@pytest.mark.parametrize("case", _REFUSED)
def test_mapping_refused_by_diff_is_refused_by_every_command(shop: Project, case: str) -> None:
    job = str(shop.job)
    filled(shop)
    before, after = _REFUSED[case]
    changed = MAPPING.replace(before, after)
    assert changed != MAPPING
    write(shop, MAPPING, "older.yaml")
    write(shop, changed)
    refused = diff(shop, "older.yaml", *SOURCE, code=2)
    doors = [["capture", "install", job], ["relay", job, "--once"], ["backfill", job]]
    doors += [["migrate-mapping", job], ["capture", "install", job, "--force"]]
    doors += [["verify", job, "--repair"], ["verify", job, "--repair", "--force"]]
    for words in doors:
        ended = shop.run(*words)
        assert ended.code == 2, (words, ended.out, ended.err)
        if words[0] == "capture":
            assert refused.partition("mapping.yaml:")[2].partition("\n")[0] in ended.err
    write(shop, MAPPING)
    shop.done("relay", job, "--once")
    assert "clean" in shop.done("verify", job, "--settle", "0").out


def test_renamed_entity_is_left_to_migrate_mapping(shop: Project) -> None:
    job = str(shop.job)
    filled(shop)
    write(shop, MAPPING, "older.yaml")
    write(shop, MAPPING.replace("  invoice: {", "  bill: {table: invoice, "))
    said = json.loads(diff(shop, "older.yaml", *SOURCE, "--json"))
    assert [(fault["where"], fault["warning"]) for fault in said["faults"]] == [("entities.bill", True)]
    assert [step["command"] for step in said["steps"]] == ["migrator migrate-mapping JOB"]
    for words in (
        ["capture", "install", "--force"],
        ["capture", "install", "--dry-run"],
        ["backfill"],
        ["relay", "--once"],
        ["verify", "--repair"],
    ):
        refused = shop.run(*words, job)
        assert (refused.code, standing(shop)) == (2, "new"), words
        assert f"run `migrator migrate-mapping {job}`" in refused.err
    change(shop, "DELETE FROM invoice WHERE id = 1")
    change(shop, "UPDATE invoice SET total = 77 WHERE id = 2")
    shop.done("migrate-mapping", job, "--settle", "0")
    shop.done("relay", job, "--once")
    assert "clean" in shop.done("verify", job, "--settle", "0").out
    invoices = [item for item in shop.items() if item["type"] == "Invoice"]
    assert {str(item["_src"]).partition(":")[0] for item in invoices} == {"bill"}
    assert len(invoices) == 59
