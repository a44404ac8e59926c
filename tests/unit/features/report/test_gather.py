"""A report gathered from a journal, a source and a table in memory."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from migrator.features.report.gather import SHOWN_AT_MOST, ReportOptions
from migrator.features.report.work import rows_words
from migrator.journal.memory import SqlOpenFindings
from migrator.mapping.difference.difference import answer_digests
from migrator.mapping.model.edges import ItemStore
from migrator.mapping.model.evidence import DiffKey, Move, State
from migrator.mapping.model.journal import Finding, Page, RunIdentity, Tally
from migrator.mapping.model.report import LagReport
from migrator.runtime.errors import StoppedError
from migrator.runtime.values import replace
from tests import pins
from tests.unit.stages.core.report_world import CHECKED, MINUTE, NOW_S, SAMPLE, WINDOW, World, different


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.journal.close()


def test_a_journal_without_a_word_of_the_job_is_empty(world: World) -> None:
    assert world.report().is_empty()
    world.phases.move(Move("get_user", State(), State("shadow"), "ann"), 0)
    assert not world.report().is_empty()


def test_finding_shows_both_sides_and_no_redacted_value(world: World) -> None:
    world.run("verify", different(4))
    world.store.items["USER#2", "ORDER#00004"]["total"] = 4_000
    (group,) = world.gather().groups
    assert (group.where, group.kind, group.attribute, group.count) == ("order", "different", "total", 1)
    assert group.cause == pins.text()
    (one,) = group.differences
    cells = {cell.attribute: cell for cell in one.cells}
    assert (cells["total"].sql, cells["total"].item, cells["total"].differs) == ("40.00", "4000", True)
    assert not cells["PK"].differs
    assert str(cells["buyer"].sql).startswith("…")
    assert set(cells) == {"PK", "SK", "total", "buyer"}
    assert "secret" not in repr(group)


def test_what_is_equal_by_now_is_reported_as_such(world: World) -> None:
    gone = Finding("unexpected", "user", "its row is not there", "[9]", '["USER#9","PROFILE"]')
    missing = Finding("missing", "user", "no item", "[1]", '["USER#1","PROFILE"]')
    world.run("verify", different(4), missing, gone)
    groups = {one.kind: one for one in world.gather().groups}
    assert set(groups) == {"different", "missing", "unexpected"}
    assert all(pins.said(one.cause) for one in groups.values())
    assert "migrator verify jobs/shop.yaml" in groups["missing"].advice


def test_remaining_differences_of_others_are_reported(world: World) -> None:
    world.run("verify", different(4), different(5))
    world.store.items["USER#2", "ORDER#00004"]["total"] = 4_000
    (group,) = world.gather().groups
    assert group.cause == pins.text()


def test_values_never_shown_are_not_reported_as_equal(world: World) -> None:
    world.run("verify", different(4, "type"), different(5, "_src"))
    assert {one.cause for one in world.gather().groups} == {""}


def test_missing_item_is_reported_as_missing(world: World) -> None:
    world.run("verify", Finding("missing", "user", "no item", "[1]", '["USER#1","PROFILE"]'))
    del world.store.items["USER#1", "PROFILE"]
    (group,) = world.gather().groups
    (one,) = group.differences
    assert {cell.item for cell in one.cells} == {None}
    assert {cell.attribute for cell in one.cells} == {"PK", "SK", "GSI1PK", "GSI1SK", "email", "name"}
    assert "secret" not in repr(group)


def test_samples_of_this_mapping_and_this_time_are_shown(world: World) -> None:
    old = replace(SAMPLE, at=NOW_S - 90_000)
    world.evidence.keep([WINDOW], [SAMPLE, old, replace(SAMPLE, revision="old")])
    (group,) = world.gather().groups
    assert (group.where, group.count, group.found_by) == ("get_user", 2, ["service"])
    assert group.cause == pins.text()
    (one,) = group.differences
    assert [(cell.attribute, cell.differs) for cell in one.cells] == [("email", False), ("name", True)]


def test_sample_hides_values_that_another_pattern_redacts(world: World) -> None:
    other = "orders_of"
    answer = answer_digests(CHECKED.mapping, ())[other]
    window = replace(WINDOW, pattern=other, answer=answer, found={DiffKey("value", "", "buyer"): 1})
    key, names = DiffKey("value", "", "buyer"), ("total", "buyer", "email")
    sides = [(total, f'"secret{total}@x"', "null") for total in ("1", "2")]
    sample = replace(SAMPLE, pattern=other, key=key, attributes=names, row=sides[0], item=sides[1])
    world.evidence.keep([window], [replace(sample, params={"email": "secret@x", "id": "7"})])
    (one,) = world.gather().groups[0].differences
    cells = {cell.attribute: cell for cell in one.cells}
    assert (cells["total"].sql, cells["total"].item) == ("1", "2")
    assert str(cells["buyer"].sql).startswith("…")
    assert cells["buyer"].sql != cells["buyer"].item
    assert cells["email"].sql == "null"
    assert one.asked["id"] == "7"
    assert "secret" not in repr(one)


def test_many_findings_are_counted_and_some_are_shown(world: World) -> None:
    names = [f"attribute{number:02}" for number in range(12)]
    world.run("verify", *(different(number, name) for name in names for number in range(600)))
    groups = world.gather().groups
    assert sum(group.count for group in groups) == 7_200
    assert sum(len(group.differences) for group in groups) <= SHOWN_AT_MOST
    assert all(len(group.differences) >= 5 for group in groups)


def test_last_full_verify_counts_and_its_findings_appear_once(world: World) -> None:
    refused = Finding("refused", "order", "the base key has no value", "[9]")
    world.run("backfill", refused, different(1))
    world.run("verify", refused, different(2), different(3))
    world.run("verify", scope="sample=1%;seed=1")
    model = world.gather()
    assert {run.kind: run.scope for run in model.runs} == {"backfill": "", "verify": ""}
    assert [(group.found_by, group.count) for group in model.groups] == [(["verify"], 2)]
    (told,) = model.refused
    assert (told.entity, told.count, told.row_keys) == ("order", 1, ["[9]"])
    assert {run.kind: run.current for run in model.runs} == {"backfill": None, "verify": True}
    world.run("verify", revision="other")
    assert {run.kind: run.current for run in world.gather().runs}["verify"] is False


def test_backfill_after_the_verify_reports_its_findings(world: World) -> None:
    world.run("verify")
    world.run(
        "backfill", Finding("refused", "order", "why", "[1]"), Finding("refused", "order", "why", "[2]")
    )
    (told,) = world.gather().refused
    assert (told.count, told.row_keys) == (2, ["[1]", "[2]"])


def test_personal_keys_are_masked_unless_requested(world: World) -> None:
    world.run(
        "verify", Finding("collision", "user", 'two rows: ["ann@x"]', '["ann@x"]', '["EMAIL#ann@x","1"]')
    )
    assert "ann@x" not in repr(world.gather(ReportOptions()))
    whole = world.gather(ReportOptions(whole_keys=True))
    assert whole.groups[0].differences[0].row_key == '["ann@x"]'


def test_values_and_keys_are_masked_unless_samples_are_requested(world: World) -> None:
    world.run("verify", Finding("different", "user", "differs", "[1]", '["USER#1","PROFILE"]', "name"))
    world.store.items["USER#1", "PROFILE"]["name"] = "N ONE"
    world.evidence.keep([WINDOW], [replace(SAMPLE, params={"id": "1", "email": "ann@x"})])
    model = world.gather(ReportOptions())
    for shown in ("N ONE", '"N1"', "Ann", "ANN", "ann@x", "30.00", "secret"):
        assert shown not in repr((model.groups, model.views)), shown
    of_user = next(one for one in model.groups if one.where == "user")
    cells = {cell.attribute: cell for one in of_user.differences for cell in one.cells}
    assert (cells["PK"].sql, cells["SK"].item) == ('"USER#1"', '"PROFILE"')
    assert cells["name"].sql != cells["name"].item
    # Marks hide no cause.
    assert pins.said({one.cause for one in model.groups})
    (asked,) = [one.asked for group in model.groups for one in group.differences if one.asked]
    assert (asked["id"], asked["email"][0]) == ("1", "…")
    assert model.views[0].collections[0].items[0].key["PK"].startswith('"USER#')
    assert any("--show-values shows them" in one for one in model.notes)


def test_row_in_many_answers_counts_once_without_mapping_advice(world: World) -> None:
    key = DiffKey("type", "", "name")
    twelve = [
        replace(SAMPLE, key=key, row=("…1a2b", "7"), item=("…1a2b", '"7"'), at=MINUTE + n, subject="…0001")
        for n in range(12)
    ]
    world.evidence.keep([replace(WINDOW, found={key: 12}, different=12, compared=14)], twelve)
    model = world.gather()
    (group,) = model.groups
    assert (group.count, group.rows, rows_words(group)) == (12, 1, pins.text("row"))
    assert group.advice == pins.text("shows")
    assert model.verdict.reasons[0] == pins.text("differ")
    several = [replace(one, subject=f"…{place:04}") for place, one in enumerate(twelve)]
    world.evidence.keep([replace(WINDOW, found={key: 12}, begun_at=MINUTE + 60)], several)
    (group,) = world.gather().groups
    assert group.rows > 1
    assert group.advice == pins.text("change")


def test_relay_and_verify_findings_of_one_row_are_one_difference(world: World) -> None:
    taken = Finding("collision", "user", "another row has it", "[2]", '["USER#1","PROFILE"]')
    world.run(
        "verify", replace(taken, reason="the item under this key is that of user:[1]", item_type="User")
    )
    world.run("relay", taken)
    opened = SqlOpenFindings(world.journal.database, "shop", "table")
    opened.settle({("user", "[2]"): 5, ("user", "[3]"): 5}, [taken, replace(taken, source_key="[3]")])
    groups = world.gather().groups
    assert sorted((one.found_by, one.count) for one in groups) == [(["relay"], 1), (["verify"], 1)]


def test_without_values_nothing_of_a_row_is_read(world: World) -> None:
    world.run("verify", different(4))
    world.evidence.keep([WINDOW], [SAMPLE])
    model = world.gather(ReportOptions(values=False))
    assert not any(one.cells or one.asked for group in model.groups for one in group.differences)
    assert not any(view.collections for view in model.views)
    assert pins.said(model.notes)


def test_collections_with_most_types_come_first_and_are_redacted(world: World) -> None:
    table, index, *_ = world.gather().views
    assert [facet.type for facet in table.facets] == ["User", "Order"]
    first = table.collections[0]
    assert [item.type for item in first.items] == ["Order", "Order", "User"]
    assert first.items[0].attributes["total"] in {"10.00", "20.00", "30.00"}
    assert [facet.keys for facet in index.facets] == [{"GSI1PK": "EMAIL#{email}", "GSI1SK": "{id:05}"}]
    assert index.collections[0].partition.startswith("…")
    assert "secret" not in repr(table) + repr(index)


class Away:
    """A table or a source that cannot be asked."""

    def __getattr__(self, name: str) -> Any:
        raise StoppedError("it does not answer")


def test_unreachable_side_is_reported_once_and_the_rest_is_shown(world: World) -> None:
    world.run("verify", *(different(number) for number in range(1, 6)))
    away: Any = Away()
    store: ItemStore = away
    model = world.gather(store=store)
    assert pins.said(model.notes, "examples")
    assert model.groups[0].count == 5
    model = world.gather(source=away)
    assert pins.said(model.notes, "sample")


def test_without_a_source_the_mapping_alone_draws_the_table(world: World) -> None:
    world.run("verify", different(1))
    model = world.gather(source=None, store=None, entities=(), notes=["the source cannot be asked"])
    assert [facet.type for facet in model.views[0].facets] == ["User", "Order"]
    assert model.runs[0].current is None
    assert model.groups[0].differences[0].cells == []


def test_pending_marks_are_the_likely_cause_of_missing_items(world: World) -> None:
    world.lag = LagReport(3, 1.0)
    world.run("verify", Finding("missing", "user", "no item", "[1]", '["USER#1","PROFILE"]'))
    del world.store.items["USER#1", "PROFILE"]
    (group,) = world.gather().groups
    assert group.cause == pins.text("way")
    assert group.advice == pins.text("compare")


def test_differences_before_the_last_move_are_apart_not_counted(
    world: World,
) -> None:
    world.run("backfill")
    world.run("verify")
    world.evidence.keep([WINDOW], [SAMPLE])
    assert world.gather().verdict.standing == "different"
    world.phases.move(Move("get_user", State(), State("shadow"), "ann"), 0)
    model = world.gather()
    assert (model.verdict.standing, model.patterns[0].before_move) == ("unproven", 4)
    (old,) = model.groups
    assert (old.before_move, old.count, len(old.differences)) == (True, 2, 1)
    after = int(NOW_S) + 1
    world.evidence.keep([replace(WINDOW, begun_at=after)], [replace(SAMPLE, at=after)])
    model = world.gather()
    assert [(one.before_move, one.count, len(one.differences)) for one in model.groups] == [
        (False, 2, 1),
        (True, 2, 1),
    ]
    assert (model.groups[0].id, len({one.id for one in model.groups})) == (old.id, 2)
    assert model.verdict.standing == "different"


def test_differences_before_a_clean_verify_are_history(
    world: World,
) -> None:
    world.run("backfill")
    world.run("verify", different(4))
    world.evidence.keep([WINDOW], [SAMPLE])
    assert world.gather().verdict.standing == "different"
    world.run("verify", at=MINUTE + 60)
    model = world.gather()
    (old,) = model.groups
    assert (old.before_verify, old.until, old.count, len(old.differences)) == (True, MINUTE + 60, 2, 1)
    assert model.verdict.standing == "unproven"
    assert model.verdict.reasons[-1] == (pins.text("differed"))
    world.run("verify", scope="sample=1%;seed=1", at=MINUTE + 90)
    assert [one.before_verify for one in world.gather().groups] == [True]
    again = replace(WINDOW, begun_at=MINUTE + 120)
    world.evidence.keep([again], [replace(SAMPLE, at=MINUTE + 130.0)])
    model = world.gather()
    assert [(one.before_verify, one.count, len(one.differences)) for one in model.groups] == [
        (False, 2, 1),
        (True, 2, 1),
    ]
    assert len({one.id for one in model.groups}) == 2
    assert model.verdict.reasons[0] == pins.text("differ")


@pytest.mark.parametrize(("oldest_s", "is_late"), [(1.0, False), (60.0, True)])
def test_a_young_mark_explains_nothing_that_was_found_before_it(
    world: World, oldest_s: float, is_late: bool
) -> None:
    world.run("backfill")
    world.lag = LagReport(1, oldest_s)
    key = DiffKey("missing", "", "")
    found = replace(WINDOW, found={key: 2})
    world.evidence.keep([found], [replace(SAMPLE, key=key, item=None, at=NOW_S - 20)])
    (group,) = world.gather().groups
    assert group.cause == pins.text()


def test_a_mark_of_after_a_verify_explains_nothing_that_it_found(world: World) -> None:
    world.run("verify", Finding("missing", "user", "no item", "[1]", '["USER#1","PROFILE"]'))
    del world.store.items["USER#1", "PROFILE"]
    world.run("backfill")
    ended_s = world.journal.runs("shop")[-1].ended_at or ""
    now_s = datetime.fromisoformat(ended_s).timestamp() + 60
    world.evidence.clock = lambda: now_s
    for oldest_s, cause in ((5.0, "never written or lost"), (70.0, "changes on their way")):
        world.lag = LagReport(1, oldest_s)
        (group,) = world.gather().groups
        assert group.cause.startswith(cause)


def test_a_tally_is_that_of_the_run(world: World) -> None:
    run = world.journal.start_run(RunIdentity("backfill", "shop", "table", "rev"))
    page = Page("user", 0, None, None)
    world.journal.plan_pages(run, "user", [page])
    world.journal.finish_page(run, page, Tally(rows=3, items=4, refused=1), [])
    (told,) = world.gather().runs
    assert (told.rows, told.items, told.refused, told.state) == (3, 4, 1, "interrupted")
