"""Entities that read a view: refused, unless the mapping says what changes it."""

from __future__ import annotations

import pytest

from migrator.mapping.items.changes import captured_tables, needs_memory
from migrator.mapping.language.parse import examine_mapping
from migrator.mapping.model.facts import Captured, EntityPlan
from migrator.mapping.model.live import MarkedBy
from migrator.runtime.errors import MappingError
from migrator.settings.transforms import checked_on
from tests import pins
from tests.integration.test_capture_triggers import images
from tests.support_capture import Capturing, capturing

SCHEMA = [
    "CREATE TABLE orders (id integer PRIMARY KEY, state varchar(9))",
    "CREATE TABLE line (order_id integer, no integer, n integer, PRIMARY KEY (order_id, no))",
    """CREATE VIEW summary AS SELECT o.id AS number, o.state AS state, SUM(l.n) AS n
       FROM orders o LEFT JOIN line l ON l.order_id = o.id GROUP BY o.id, o.state""",
]
LABEL = {
    "postgresql": "CREATE FUNCTION label(t text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT {}'",
    "mariadb": "CREATE FUNCTION label(t text) RETURNS varchar(9) DETERMINISTIC RETURN {}",
}
"""A function that the mapping's SQL calls, on engines that keep functions."""
MAPPING = """\
mapping: 1
table: {name: Shop, key: [PK, SK], type: type, ttl: expiresAt}
entities:
  summary:
    key: [number]
    CHANGES
    items: {Summary: {key: ["O#{number}", S], attributes: {state: state}}}
  order: {table: orders, COLUMNS items: {Order: {key: ["O#{id}", O]}}}
"""


def plans(shop: Capturing, changes: str, columns: str = "") -> list[EntityPlan]:
    text = MAPPING.replace("CHANGES", changes).replace("COLUMNS ", columns)
    parsed = examine_mapping(text, "shop.yaml")
    return [entity.plan for entity in checked_on(shop.source, parsed).entities]


def test_view_is_refused_unless_the_mapping_names_its_changes(shop: Capturing) -> None:
    unsaid = plans(shop, "columns: {}")
    (refusal,) = shop.capture.refusals(shop.capture.captured(unsaid))
    assert pins.said(refusal, "summary")
    assert pins.said(refusal, "orders")
    said = plans(shop, "changes: {orders: id, line: [order_id]}")
    wanted = shop.capture.captured(said)
    assert shop.capture.refusals(wanted) == []
    shop.install(*wanted)
    shop.run(
        "INSERT INTO line VALUES (1, 1, 5)",
        "UPDATE orders SET state = 'x'",
        "INSERT INTO orders VALUES (2, 'a')",
    )
    marks = shop.left()
    assert images(marks) == [("line", None, (1,)), ("orders", None, (2,))]
    lookups = captured_tables(said)[marks[0].table].lookups
    assert [(one.entity, one.values, one.is_root) for one in lookups] == [("summary", ("order_id",), True)]


def test_every_update_behind_a_view_counts_and_keys_are_kept(shop: Capturing) -> None:
    said = plans(shop, "changes: {orders: id}")
    shop.install(*shop.capture.captured(said))
    shop.run("INSERT INTO orders VALUES (1, 'a')", "UPDATE orders SET state = 'b'")
    assert len(shop.left()) == 2
    assert [needs_memory(plan) for plan in said] == [True, False]


@pytest.mark.parametrize("changes", ["{order: id}", "{orders: number}", "{line: [order_id, no]}"])
def test_what_changes_names_must_be_there(shop: Capturing, changes: str) -> None:
    with pins.refused(MappingError):
        plans(shop, f"changes: {changes}")


@pytest.mark.parametrize("marked_by", ["triggers", "services"])
def test_replaced_definition_makes_capture_stale_until_install(shop: Capturing, marked_by: MarkedBy) -> None:
    """No row is changed then, and items have other values from now on."""
    shop.run(SCHEMA[2].replace("summary", "behind"), "DROP VIEW summary", view("n"))
    columns = ""
    if function := LABEL.get(shop.engine):
        shop.run(function.format("1"), "CREATE VIEW unread AS SELECT 1 AS one")
        columns = "columns: {label: label(state)}, "

    def tables(now: Capturing) -> list[Captured]:
        return now.capture.captured(plans(now, "changes: {orders: id}", columns))

    def states() -> list[tuple[str, str, tuple[str, ...]]]:
        with capturing(shop.engine, shop.url) as now:
            return [(one.table[-6:], one.state, one.gone) for one in now.capture.states(tables(now))]

    def install() -> None:
        with capturing(shop.engine, shop.url) as now:
            for step in now.capture.install_steps(tables(now), "shop", marked_by):
                now.capture.do(step)
            assert now.capture.install_steps(tables(now), "shop", marked_by) == []

    well = [("orders", "captured" if marked_by == "triggers" else "services", ())]
    install()
    assert states() == well
    changes = [["DROP VIEW summary", view("n + 1")]]
    if function:
        shop.run("DROP VIEW unread")
        assert states() == well
        changes.append(
            ["DROP FUNCTION label" + "(text)" * (shop.engine == "postgresql"), function.format("2")]
        )
    for change, name in zip(changes, ("summary", "label"), strict=False):
        shop.run(*change)
        ((_, state, gone),) = states()
        assert state == "stale"
        assert gone in ((), (f"definition of {name}",))
        install()
        assert states() == well


def view(n: str) -> str:
    return f"CREATE VIEW summary AS SELECT number, state, {n} AS n FROM behind"
