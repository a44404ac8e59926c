"""Findings counted by what they are of: the fake, and journals of every kind."""

from __future__ import annotations

from collections.abc import Sequence

from migrator.journal.memory import SqlOpenFindings
from migrator.journal.runs import SqlFindingGroups, SqlJournal
from migrator.mapping.model.journal import Finding, FindingGroup, FindingGroups, Run, RunIdentity
from tests.fakes.finding_groups import FakeFindingGroups

PRICES = [Finding("different", "product", "price", f"[{n}]", f'["P#{n}"]', "price") for n in range(5)]
NAMES = [Finding("different", "product", "name", "[1]", '["P#1"]', "name")]
MISSING = [Finding("missing", "product", "no item", f"[{n}]") for n in range(2)]


def made(journal: SqlJournal | None, *runs: Sequence[Finding]) -> tuple[FindingGroups, list[Run]]:
    """Runs with these findings, one after the other."""
    if journal is None:
        fake, identity = FakeFindingGroups(), RunIdentity("verify", "shop", "table", "rev")
        known = [Run(number, identity, "done", "") for number in range(len(runs))]
        for run, found in zip(known, runs, strict=True):
            fake.add(run, found)
        return fake, known
    known = []
    for number, found in enumerate(runs):
        run = journal.start_run(RunIdentity("verify", "shop", "table", f"rev{number}"))
        journal.add_findings(run, found)
        known.append(run)
    return SqlFindingGroups(journal.database), known


def test_findings_are_counted_by_kind_entity_and_attribute(journal_or_fake: SqlJournal | None) -> None:
    groups, (run, other) = made(journal_or_fake, [*MISSING, *NAMES, *PRICES], PRICES[:1])
    counted = groups.groups(run)
    assert counted == [
        FindingGroup("different", "product", "price", 5),
        FindingGroup("missing", "product", "", 2),
        FindingGroup("different", "product", "name", 1),
    ]
    assert groups.some(run, counted[0], 3) == PRICES[:3]
    assert groups.some(run, counted[1], 9) == MISSING
    assert groups.some(run, FindingGroup("different", "Product", "price", 1), 9) == []
    assert groups.groups(other) == [FindingGroup("different", "product", "price", 1)]


def test_relay_findings_are_the_open_ones_of_any_relay(journal: SqlJournal) -> None:
    runs = [journal.start_run(RunIdentity("relay", "shop", "table", "rev")) for _ in range(2)]
    journal.add_findings(runs[0], MISSING)
    root = ("product", "[1]")
    refused = Finding("refused", "product", "no price", "[1]")
    SqlOpenFindings(journal.database, "shop", "table").settle({root: 5}, [refused])
    SqlOpenFindings(journal.database, "shop", "other").settle({root: 5}, [refused])
    groups = SqlFindingGroups(journal.database)
    for run in runs:
        assert groups.groups(run) == [FindingGroup("refused", "product", "", 1)]
        assert groups.some(run, groups.groups(run)[0], 9) == [refused]
