"""What `migrator plan` says in one line of the ways to fill a table."""

from __future__ import annotations

from decimal import Decimal

from migrator.features.plan.work import way_money, way_remarks, way_time, ways_text, would_do
from migrator.mapping.model.capacity import Way
from migrator.runtime.values import replace
from tests import pins
from tests.support_plan import PLAN

BATCHES = Way("batches", 70.0, Decimal("18.75"), "4,000 write units a second, by hand")
GLUE = Way("glue", 2.5, None, "3 executors of 4 vCPUs", against=("needs a cluster", "needs more"))
IMPORT = Way(*("import", 1.5, Decimal("0.9"), "one core"), against=("needs a bucket",), is_open_ended=True)
LOCAL = Way("import", 1.5, Decimal("0.9"), "one core", impossible="it has a local index")


def test_cheapest_and_fastest_ways_are_named_with_drawbacks() -> None:
    assert ways_text([BATCHES, GLUE, IMPORT], IMPORT, GLUE) == (pins.text())


def test_impossible_way_has_a_reason_and_no_figures() -> None:
    assert ways_text([BATCHES, LOCAL], BATCHES, BATCHES) == (
        "cheapest: batches (USD 18.75); fastest: batches (70.0 hours; 4,000 write units a second, by hand);"
        " no import: it has a local index"
    )
    assert (way_money(LOCAL), way_remarks(LOCAL)) == ("–", pins.text())


def test_what_is_unknown_is_reported() -> None:
    assert ways_text([GLUE], None, None) == (pins.text())


def test_an_import_takes_longer_than_its_export() -> None:
    assert way_time(IMPORT) == pins.text("minutes")
    assert way_remarks(IMPORT) == pins.text("core")


def test_a_source_without_triggers_has_none_installed() -> None:
    assert would_do(PLAN).split(", ")[1] == pins.text()
    assert would_do(replace(PLAN, triggers=0)).split(", ")[1] == pins.text("without")
