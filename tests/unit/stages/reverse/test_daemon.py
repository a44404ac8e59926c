"""Rows that wait are looked at by a process that knows the entities that are direct by now, and by no other."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

import pytest

from migrator.mapping.check.check import Checked, check_mapping
from migrator.mapping.inverse.rows import Inverse, compile_inverse
from migrator.mapping.model.facts import Column, ForeignKey, Kind, TableFacts
from migrator.mapping.model.live import Checkpoint, Checkpoints
from migrator.runtime.values import replace
from migrator.stages.reverse.daemon import (
    DirectChangedError,
    ReverseDaemon,
    WhileDirect,
    looks_at_waiting_rows,
    notes,
    shared_tables,
    unreadable,
)
from migrator.stages.session.reverse import written_tables
from tests import pins
from tests.support_mapping import parse_mapping
from tests.unit.stages.core.reverse_world import FACTS, Shop, customer, line, order

ALL = frozenset(FACTS.tables)


def _daemon(
    shop: Shop, names: frozenset[str], on_record: Callable[[], frozenset[str]], *, once: bool = True
) -> ReverseDaemon:
    stage = shop.reverse(names=names)
    work = WhileDirect(stage, names, on_record)
    reader = shop.world.reader(f"p{id(stage)}", work=work)

    def pause(_: float) -> None:
        shop.world.fake.advance(8.0)

    return ReverseDaemon(reader, work, shop.world.journal, Event(), once, pause, shop.clock(), None)


def _parked() -> Shop:
    """A customer that fits no row, one that is to go, and an item of which nothing says whose it is."""
    shop = Shop()
    shop.put(customer(1), customer(2))
    shop.drain()
    shop.put({**customer(1), "name": 5}, {**customer(3), "id": "three"}, line(7, 1))
    shop.delete(customer(2))
    shop.drain(1, 0.0)
    assert len(shop.journal.waits) == 4
    return shop


def test_process_without_direct_entities_leaves_waiting_rows() -> None:
    """Its shards are idle, so no page tells it that entities are direct by now."""
    shop = _parked()
    before, rows = dict(shop.journal.waits), shop.there()
    shop.world.fake.advance(3600)
    with pytest.raises(DirectChangedError):
        _daemon(shop, frozenset(), lambda: ALL).run()
    assert (shop.journal.waits, shop.there()) == (before, rows)


def test_no_row_goes_once_the_direction_has_turned() -> None:
    """It turns between the two looks at a row that no item holds."""
    shop = _parked()

    def on_record() -> frozenset[str]:
        return frozenset() if shop.journal.waits[("customer", "[2]")].looks else ALL

    with pytest.raises(DirectChangedError):
        _daemon(shop, ALL, on_record).run()
    assert shop.there()["customer"] == {1, 2}


@pytest.mark.parametrize("left", [frozenset[str](), frozenset({"orders"})])
def test_rows_of_an_entity_taken_back_wait_and_hold_up_no_other(left: frozenset[str]) -> None:
    shop = _parked()
    for _ in range(3):
        shop.world.fake.advance(3600)
        _daemon(shop, left, lambda: left).run()
    assert {one.row for one in shop.journal.waiting() if one.row[0]} == {
        *{("customer", "[1]"), ("customer", "[2]"), ("line", "[7,1]")}
    }
    assert shop.there() == {"customer": {1, 2}, "orders": set(), "line": set()}
    shop.put(customer(1, "a"), customer(3), order(7, 1))
    shop.drain()
    assert shop.is_equal()


def test_many_rows_of_others_do_not_keep_a_row_from_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migrator.stages.reverse.stage._AT_ONCE", 2)
    shop = _parked()
    shop.put(order(8, 9))
    shop.drain(1, 0.0)
    shop.rows["customer"].append({"id": 9, "name": "n9"})
    shop.world.fake.advance(3600)
    _daemon(shop, frozenset({"orders"}), lambda: frozenset({"orders"})).run()
    assert shop.there()["orders"] == {8}


@pytest.mark.parametrize(
    ("owner", "looks"),
    [("one", False), ("two", True), ("three", False), ("", False)],
    ids=["of a finished shard", "of the first open one", "of another one", "of none"],
)
def test_one_process_looks_at_rows_that_wait(owner: str, looks: bool) -> None:
    checkpoints = Checkpoints(
        100.0,
        (
            Checkpoint("c", "", "", 0.0, owner="three", leased_until=160.0),
            Checkpoint("a", "", "", 0.0, is_finished=True, owner="one", leased_until=160.0),
            Checkpoint("b", "a", "", 0.0, owner="two", leased_until=160.0),
        ),
    )
    assert looks_at_waiting_rows(checkpoints, owner) == looks
    late = Checkpoints(170.0, checkpoints.shards)
    assert not looks_at_waiting_rows(late, owner)


MAPPING = """
mapping: 1
table: {name: Shop, key: [PK, SK], type: type}
entities:
  orders:
    collect: {lines: {of: line, by: order_id}}
    items:
      Order:
        key: ["O#{id}", M]
        attributes: {id: id, customer_id: customer_id, total: total, hot: hot, lines: {each: lines, attributes: {no: no, sku: sku}}}
  line: {items: {Line: {key: ["L#{order_id}", "L#{no}"], attributes: {order_id: order_id, no: no, sku: sku}}}}
"""


def _made(*names: str) -> tuple[Checked, Inverse, list[str]]:
    checked = check_mapping(parse_mapping(MAPPING, "shop.yaml"), FACTS)
    plans = [entity.plan for entity in checked.named(names)]
    inverse = compile_inverse(checked.mapping, plans)
    return checked, inverse, sorted(written_tables(inverse, plans, checked.besides(names)))


def test_rows_that_another_entity_is_made_of_are_not_written() -> None:
    checked, inverse, written = _made("orders")
    assert {one.table for one in inverse.tables} == {"orders", "line"}
    assert written == ["orders"]
    (told,) = shared_tables(checked.besides(["orders"]), inverse)
    assert told == (pins.text())


def test_they_are_where_both_are_direct() -> None:
    checked, inverse, written = _made("orders", "line")
    assert written == ["line", "orders"]
    assert list(shared_tables(checked.besides(["orders", "line"]), inverse)) == []


def test_table_keyed_by_a_document_is_named() -> None:
    """Equal documents have several texts: a row that one of them names would not be found by another."""
    columns = (Column("doc", "doc", Kind("json"), nullable=False), Column("n", "n", Kind("integer")))
    facts = replace(FACTS, tables={"note": TableFacts("note", "note", columns, ("doc",))})
    text = MAPPING.partition("entities:")[0] + (
        'entities: {note: {items: {Note: {key: ["N#{doc|json|hash}", M], attributes: {doc: doc, n: n}}}}}\n'
    )
    checked = check_mapping(parse_mapping(text, "shop.yaml"), facts)
    entities = checked.named(["note"])
    inverse = compile_inverse(checked.mapping, [entity.plan for entity in entities])
    assert any(
        "JSON document in its key (doc)" in one for one in unreadable(inverse, entities, takes_rows=True)
    )


def _referring(name: str, *keys: tuple[str, bool, bool]) -> TableFacts:
    """A table whose foreign keys lead to a table each. `keys`: that table, whether the column may be NULL, whether it is deferrable."""
    columns = [Column("id", "id", Kind("integer"), nullable=False)]
    columns += [Column(to, to, Kind("integer"), nullable) for to, nullable, _ in keys]
    foreign = tuple(ForeignKey((to,), to, ("id",), deferrable) for to, _, deferrable in keys)
    return TableFacts(name, name, tuple(columns), ("id",), foreign_keys=foreign)


@pytest.mark.parametrize("way_out", [(True, False), (False, True)], ids=["may be NULL", "deferrable"])
def test_circle_of_rows_is_named_if_no_foreign_key_gives_way(way_out: tuple[bool, bool]) -> None:
    team, player = ("team", False, False), ("player", False, False)
    tables = [
        _referring("team", player),
        _referring("player", team),
        _referring("fan", player, ("fan", False, False)),
    ]
    (note,) = notes(tables, {})
    assert "rows of fan, player, team" in note
    (note,) = notes([_referring("team", ("player", *way_out)), *tables[1:]], {})
    assert "rows of fan can" in note
    assert list(notes([tables[1], _referring("fan", player, ("fan", *way_out))], {})) == []
