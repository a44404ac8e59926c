"""What a journal holds of single rows, on every kind of it: counted, forgotten, and nothing of another row's."""

from __future__ import annotations

import pytest

from migrator.journal.memory import SqlMemory, SqlTraces
from migrator.journal.phases import SqlEvidence
from migrator.journal.runs import SqlJournal
from migrator.mapping.model.evidence import DiffKey, Sample
from migrator.mapping.model.journal import Finding, Page, RunIdentity
from migrator.mapping.model.live import KeyRequest, Root

TABLE, OTHER_TABLE = "table-1", "table-2"
ANN: Root = ("user", '["Ζ\'\\"%_ 😀@x"]')
SIBLING: Root = ("account", ANN[1])
BOB: Root = ("user", '["Bob"]')
LIKE: Root = ("user", '["Ζ\'\\"a_ 😀@x"]')
"""What the key of ANN would mean if its % were one of LIKE's."""
KINDS = ["claims", "contests", "findings", "remembered keys", "samples"]


def fill(journal: SqlJournal, table_id: str, job: str = "shop") -> None:
    """Of each root a finding, a claim, a wish and two remembered keys; one finding that names another row; a sample."""
    run = journal.start_run(RunIdentity("backfill", job, table_id, "rev"))
    memory = SqlMemory(journal.database, table_id)
    at = Sample("recent_orders", DiffKey("value", "", "total"), 1.0, "writer", "rev")
    SqlEvidence(journal.database, job).keep([], [at])
    for number, root in enumerate((ANN, BOB, LIKE)):
        name, key = root
        journal.add_findings(run, [Finding("refused", name, "no total", key)])
        journal.claim(table_id, [(bytes([number]) * 16, f"{name}:{key}")])
        memory.remember(5, {root: [("K", str(number)), ("L", str(number))]})
        memory.request_keys([KeyRequest(("K", "wanted"), root)], 1)
    for owner in (ANN, LIKE):
        named = Finding("collision", "user", "another has it", '["Cid"]', owner=f"{owner[0]}:{owner[1]}")
        journal.add_findings(run, [named])


def traces(journal: SqlJournal, table_id: str = TABLE, job: str = "shop") -> SqlTraces:
    return SqlTraces(journal.database, job, table_id)


def test_every_kind_is_counted(journal: SqlJournal) -> None:
    fill(journal, TABLE)
    assert traces(journal).count([ANN]) == {
        "findings": 2,
        "claims": 1,
        "contests": 1,
        "remembered keys": 3,
        "samples": 1,
    }
    # Whose values a sample holds is not known.
    assert traces(journal).count([("user", '["nobody"]')]) == dict.fromkeys(KINDS, 0) | {"samples": 1}


def test_forgotten_traces_are_gone_and_the_rest_is_unchanged(journal: SqlJournal) -> None:
    fill(journal, TABLE)
    others = [traces(journal).count([root]) | {"samples": 0} for root in (BOB, LIKE)]
    assert traces(journal).forget([ANN], KINDS, ticket=9) == {
        "findings": 2,
        "claims": 1,
        "contests": 1,
        "remembered keys": 3,
        "samples": 1,
    }
    assert traces(journal).count([ANN]) == dict.fromkeys(KINDS, 0)
    assert [traces(journal).count([root]) for root in (BOB, LIKE)] == others
    assert SqlMemory(journal.database, TABLE).requests_of([("K", "wanted")]) == sorted(
        SqlMemory(journal.database, TABLE).requests_of([("K", "wanted")]), key=lambda one: 0
    )
    assert {one.root for one in SqlMemory(journal.database, TABLE).requests_of([("K", "wanted")])} == {
        BOB,
        LIKE,
    }


def test_findings_of_an_item_without_its_row_go_by_the_items_key(journal: SqlJournal) -> None:
    run = journal.start_run(RunIdentity("backfill", "shop", TABLE, "rev"))
    journal.add_findings(run, [Finding("unwritten", "user", "left", item_key='["K","1"]')])
    journal.add_findings(run, [Finding("unwritten", "user", "left", item_key='["K","2"]')])
    journal.add_findings(run, [Finding("unwritten", "order", "left", item_key='["K","1"]')])
    journal.add_findings(run, [Finding("missing", "user", "none", BOB[1], '["K","1"]')])
    assert traces(journal).count([ANN], ['["K","1"]'])["findings"] == 1
    assert traces(journal).forget([ANN], ["findings"], ['["K","1"]'], ticket=9) == {"findings": 1}
    left = [(one.entity, one.source_key, one.item_key) for one in journal.findings(run)]
    assert left == [("user", "", '["K","2"]'), ("order", "", '["K","1"]'), ("user", BOB[1], '["K","1"]')]


def test_only_the_kinds_that_are_named_go(journal: SqlJournal) -> None:
    fill(journal, TABLE)
    assert traces(journal).forget([ANN], ["findings"], ticket=9) == {"findings": 2}
    counts = traces(journal).count([ANN])
    assert (counts["findings"], counts["claims"], counts["remembered keys"]) == (0, 1, 3)
    assert traces(journal).forget([ANN], [], ticket=9) == {}


def test_keys_remembered_with_a_higher_ticket_stay(journal: SqlJournal) -> None:
    """The row has come back."""
    fill(journal, TABLE)
    memory = SqlMemory(journal.database, TABLE)
    memory.remember(7, {ANN: [("M", "0")]})
    assert traces(journal).forget([ANN], ["remembered keys"], ticket=6) == {"remembered keys": 0}
    assert memory.remember(8, {ANN: []})[ANN].keys == {("K", "0"), ("L", "0"), ("M", "0")}
    assert traces(journal).forget([ANN], ["remembered keys"], ticket=8) == {"remembered keys": 4}


def test_forgetting_twice_is_forgetting_once(journal: SqlJournal) -> None:
    fill(journal, TABLE)
    traces(journal).forget([ANN], KINDS, ticket=9)
    assert traces(journal).forget([ANN], KINDS, ticket=9) == dict.fromkeys(KINDS, 0)


def test_another_table_and_another_job_keep_theirs(journal: SqlJournal) -> None:
    fill(journal, TABLE)
    fill(journal, OTHER_TABLE, "other")
    traces(journal).forget([ANN], KINDS, ticket=9)
    assert traces(journal, OTHER_TABLE, "other").count([ANN]) == {
        "findings": 2,
        "claims": 1,
        "contests": 1,
        "remembered keys": 3,
        "samples": 1,
    }


def test_several_roots_go_at_once(journal: SqlJournal) -> None:
    fill(journal, TABLE)
    SqlMemory(journal.database, TABLE).remember(5, {SIBLING: [("M", "1")]})
    assert traces(journal).forget([ANN, SIBLING], KINDS, ticket=9)["remembered keys"] == 5
    assert traces(journal).count([SIBLING])["remembered keys"] == 0


@pytest.mark.parametrize(
    ("after", "upto", "count"), [(None, ANN[1], 1), (ANN[1], None, 1), (None, BOB[1], 0)]
)
def test_bounds_of_pages_are_counted(
    journal: SqlJournal, after: str | None, upto: str | None, count: int
) -> None:
    run = journal.start_run(RunIdentity("backfill", "shop", TABLE, "rev"))
    journal.plan_pages(run, "user", [Page("user", 1, after, upto)])
    assert traces(journal).page_bounds([ANN]) == count
    assert traces(journal, job="other").page_bounds([ANN]) == 0
