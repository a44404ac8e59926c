"""What every list of open findings does: the fake one, and journals of every kind."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from migrator.journal.memory import SqlOpenFindings, SqlTraces
from migrator.journal.runs import SqlJournal
from migrator.mapping.model.journal import Finding
from migrator.mapping.model.live import OpenFindings, Root
from tests.fakes.journal import FakeOpenFindings

ONE: Root = ("order", "[1]")
TWO: Root = ("order", '["Ζ\'\\"% 😀"]')
REFUSED = Finding("refused", "order", "no total", "[1]")
TAKEN = Finding(
    "collision", "order", "another has it", TWO[1], '["K","1"]', item_type="O:2", owner="order:[1]"
)
MARK = Finding("mark", "orders", "mark 7: its entity is not in the mapping")

Make = Callable[[str, str], OpenFindings]


@pytest.fixture
def make(journal_or_fake: SqlJournal | None) -> Make:
    """A function from a job and a table's id to what is open of them."""
    made: dict[tuple[str, str], OpenFindings] = {}
    if journal_or_fake is None:
        return lambda job, table_id: made.setdefault((job, table_id), FakeOpenFindings())
    database = journal_or_fake.database
    return lambda job, table_id: SqlOpenFindings(database, job, table_id)


@pytest.fixture
def opened(make: Make) -> OpenFindings:
    return make("shop", "table-1")


def test_finding_is_open_until_its_row_settles_without_it(opened: OpenFindings) -> None:
    opened.settle({ONE: 5, TWO: 5}, [REFUSED, TAKEN])
    assert (opened.counts(), opened.roots()) == ({"refused": 1, "collision": 1}, sorted([ONE, TWO]))
    opened.settle({ONE: 6}, [])
    assert opened.read() == [TAKEN]
    opened.settle({TWO: 7}, [])
    assert (opened.read(), opened.counts(), opened.roots()) == ([], {}, [])


def test_row_refused_repeatedly_is_one_finding_with_last_reason(
    opened: OpenFindings,
) -> None:
    for ticket in range(1, 50):
        opened.settle({ONE: ticket}, [Finding("refused", "order", f"reason {ticket}", "[1]")])
    assert [one.reason for one in opened.read()] == ["reason 49"]
    assert (opened.counts(above=48), opened.counts(above=49)) == ({"refused": 1}, {})


def test_a_row_has_one_finding_for_each_key_that_it_wants(opened: OpenFindings) -> None:
    wishes = [Finding("collision", "order", "taken", "[1]", f'["K","{number}"]') for number in range(3)]
    opened.settle({ONE: 5}, wishes)
    opened.settle({ONE: 6}, wishes[:1])
    assert opened.read() == wishes[:1]


def test_an_older_reading_changes_nothing(opened: OpenFindings) -> None:
    opened.settle({ONE: 6}, [REFUSED])
    opened.settle({ONE: 5}, [])
    opened.settle({ONE: 5}, [Finding("refused", "order", "older", "[1]")])
    assert opened.read() == [REFUSED]


def test_marks_are_one_finding_a_table_and_go_together(opened: OpenFindings) -> None:
    opened.settle({ONE: 6}, [REFUSED])
    opened.settle({}, [MARK])
    opened.settle({}, [Finding("mark", "orders", "mark 8: it cannot be read")])
    assert opened.counts() == {"refused": 1, "mark": 1}
    opened.close_marks()
    assert opened.read() == [REFUSED]


def test_findings_of_entities_not_in_the_mapping_are_closed(opened: OpenFindings) -> None:
    gone = Finding("refused", "invoice", "no total", "[1]")
    opened.settle({ONE: 6, ("invoice", "[1]"): 6}, [REFUSED, gone])
    opened.settle({}, [MARK])
    opened.keep_entities({"order", "user"})
    assert opened.counts() == {"refused": 1, "mark": 1}


def test_jobs_and_tables_have_their_own(make: Make) -> None:
    places = [make("shop", "table-1"), make("shop", "table-2"), make("crm", "table-1")]
    for one in places:
        one.settle({ONE: 5}, [REFUSED])
    places[0].settle({ONE: 6}, [])
    assert [one.counts() for one in places] == [{}, {"refused": 1}, {"refused": 1}]


def test_thousands_are_settled_at_once(opened: OpenFindings) -> None:
    roots: list[Root] = [("order", f"[{number}]") for number in range(900)]
    opened.settle(
        dict.fromkeys(roots, 5), [Finding("refused", root[0], "no total", root[1]) for root in roots]
    )
    assert len(opened.read(10)) == 10
    opened.settle(dict.fromkeys(roots[:899], 6), [])
    assert opened.roots() == roots[899:]


def test_open_findings_of_a_row_are_forgotten_with_it(journal: SqlJournal) -> None:
    opened = SqlOpenFindings(journal.database, "shop", "table-1")
    other = Finding("refused", "order", "no total", "[3]")
    opened.settle({ONE: 5, TWO: 5, ("order", "[3]"): 5}, [REFUSED, TAKEN, other])
    traces = SqlTraces(journal.database, "shop", "table-1")
    # Its own, and that of the row which wants its key.
    assert traces.count([ONE])["findings"] == 2
    assert traces.forget([ONE], ["findings"], ticket=9) == {"findings": 2}
    assert opened.read() == [other]
