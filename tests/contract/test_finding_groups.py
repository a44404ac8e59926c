"""Findings counted by what they are of, in journals of every kind."""

from __future__ import annotations

from collections.abc import Sequence

from migrator.journal.memory import SqlOpenFindings
from migrator.journal.runs import SqlJournal
from migrator.mapping.model.journal import Finding, FindingGroup, Run, RunIdentity

PRICES = [Finding("different", "product", "price", f"[{n}]", f'["P#{n}"]', "price") for n in range(5)]
NAMES = [Finding("different", "product", "name", "[1]", '["P#1"]', "name")]
MISSING = [Finding("missing", "product", "no item", f"[{n}]") for n in range(2)]


def made(journal: SqlJournal, *runs: Sequence[Finding]) -> list[Run]:
    """Runs with these findings, one after the other."""
    known = []
    for number, found in enumerate(runs):
        run = journal.start_run(RunIdentity("verify", "shop", "table", f"rev{number}"))
        journal.add_findings(run, found)
        known.append(run)
    return known


def test_findings_are_counted_by_kind_entity_and_attribute(journal: SqlJournal) -> None:
    run, other = made(journal, [*MISSING, *NAMES, *PRICES], PRICES[:1])
    counted = journal.finding_groups(run)
    assert counted == [
        FindingGroup("different", "product", "price", 5),
        FindingGroup("missing", "product", "", 2),
        FindingGroup("different", "product", "name", 1),
    ]
    assert journal.findings_of(run, counted[0], 3) == PRICES[:3]
    assert journal.findings_of(run, counted[1], 9) == MISSING
    assert journal.findings_of(run, FindingGroup("different", "Product", "price", 1), 9) == []
    assert journal.finding_groups(other) == [FindingGroup("different", "product", "price", 1)]


def test_relay_findings_are_the_open_ones_of_any_relay(journal: SqlJournal) -> None:
    runs = [journal.start_run(RunIdentity("relay", "shop", "table", "rev")) for _ in range(2)]
    journal.add_findings(runs[0], MISSING)
    root = ("product", "[1]")
    refused = Finding("refused", "product", "no price", "[1]")
    SqlOpenFindings(journal.database, "shop", "table").settle({root: 5}, [refused])
    SqlOpenFindings(journal.database, "shop", "other").settle({root: 5}, [refused])
    for run in runs:
        assert journal.finding_groups(run) == [FindingGroup("refused", "product", "", 1)]
        assert journal.findings_of(run, journal.finding_groups(run)[0], 9) == [refused]
