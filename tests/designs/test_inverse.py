"""Rows of Chinook and of every design come back from their items; of tables that are called invertible, whole and without loss."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from migrator.mapping.check.check import Checked
from migrator.mapping.inverse.rows import Inverse, compile_inverse
from migrator.mapping.items.items import CompiledEntity, items_for
from migrator.mapping.items.wire import decode_item, encode_item
from migrator.mapping.model.facts import NO_TABLE
from migrator.mapping.model.table import Item, RowTree
from migrator.settings.job import SourceSettings
from migrator.settings.transforms import checked_on, read_mapping
from migrator.source.reader import SqlSource
from migrator.stages.session.source import open_source
from tests.designs.golden import script_of
from tests.fakes.source import MemorySource
from tests.language.conftest import database_on
from tests.language.engines import ENGINES
from tests.support_inverse import rows_for
from tools.pages.golden import DESIGNS, NAMES, ROOT

ROWS_OF_CHINOOK = 15_607
TO_SECONDS = frozenset(
    {
        "alarms",
        "app_table",
        "big_time_deals",
        "customer_addresses",
        "ecommerce_table",
        "orders_by_total",
        "version_control",
    }
)
"""Designs that write times to the second, or finer: MariaDB's columns hold no more, and lose nothing by it."""
LOST = {
    "alarms": {"alarms.changed_at": "cut", "events.at": "cut"},
    "app_table": {"users.created_at": "cut", "orders.created_at": "cut", "sessions.expires_at": "cut"},
    "big_time_deals": {"deals.created_at": "cut", "messages.created_at": "cut"},
    "customer_addresses": {"orders.created_at": "cut"},
    "customer_bookmark": {
        f"{table}.{column}": "absent"
        for table in ("customers", "bookmarks")
        for column in ("created_at", "updated_at")
    },
    "ecommerce_table": {"users.created_at": "cut", "orders.created_at": "cut"},
    "folders": {"folders.parent_id": "absent"},
    "iot_events": {"events.occurred_at": "cut"},
    "orders_by_total": {"orders.created_at": "cut"},
    "org_tree": {"nodes.id": "absent", "nodes.parent_id": "absent"},
    "org_tree_by_tenant": {"nodes.id": "absent", "nodes.parent_id": "absent"},
    "version_control": {"users.created_at": "cut", "issues.updated_at": "mixed", "issues.labels": "many"},
}
ROWS_LOST = {"alarms": {"events"}, "app_table": {"sessions"}, "iot_events": {"events"}}
"""Tables whose items expire."""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", NAMES)
def test_the_rows_of_a_design(name: str, engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = database_on(engine, request, tmp_path)(script_of(name, engine))
    inverse, rows = _there_and_back(DESIGNS / f"{name}.yaml", url)
    lost = {f"{one.table}.{column.column}": column.cause for one in inverse.tables for column in one.lost}
    wanted = LOST.get(name, {})
    if engine == "mariadb" and name in TO_SECONDS:
        wanted = {
            column: cause
            for column, cause in wanted.items()
            if column == "sessions.expires_at" or cause == "many"
        }
    assert lost == wanted
    assert {one.table for one in inverse.tables if one.rows_lost} == ROWS_LOST.get(name, set())
    assert rows


@pytest.mark.slow
def test_chinook_on_sqlite(chinook_sqlite: Path) -> None:
    _whole("chinook", f"sqlite:///{chinook_sqlite}")


@pytest.mark.nightly
def test_chinook_on_postgresql(chinook_postgres: str) -> None:
    _whole("chinook_postgresql", chinook_postgres)


@pytest.mark.nightly
def test_chinook_on_mariadb(chinook_mysql: str) -> None:
    _whole("chinook", chinook_mysql)


def _whole(name: str, url: str) -> None:
    inverse, rows = _there_and_back(ROOT / "mappings" / f"{name}.yaml", url)
    assert len(inverse.tables) == 11
    assert all(one.invertible for one in inverse.tables), inverse.tables
    assert rows == ROWS_OF_CHINOOK


def _there_and_back(mapping: Path, url: str) -> tuple[Inverse, int]:
    """The mapping's inverse, and how many rows there are: each is what its items say, and makes those items again."""
    parsed = read_mapping(mapping)
    with open_source(SourceSettings(url=url), parsed) as source:
        assert isinstance(source, SqlSource)
        checked = checked_on(source, parsed)
        inverse = compile_inverse(checked.mapping, checked.plans, source.views())
        trees = {one.name: source.read_page(one.plan, None, None) for one in checked.entities}
        items = [item for one in checked.entities for item in _stored(one, trees[one.name])]
        back = rows_for(inverse, items)
        for entity in (one for one in checked.entities if not one.plan.is_single):
            _compare(entity, trees[entity.name], back.get(entity.plan.table.name, []), inverse)
        if all(one.invertible for one in inverse.tables):
            _items_again(checked, source, back, items)
    return inverse, sum(map(len, trees.values()))


def _stored(entity: CompiledEntity, trees: list[RowTree]) -> list[Item]:
    """The items as DynamoDB gives them back."""
    return [decode_item(encode_item(item)) for tree in trees for item in items_for(entity, tree)]


def _compare(
    entity: CompiledEntity, trees: list[RowTree], back: list[dict[str, Any]], inverse: Inverse
) -> None:
    columns = inverse.recovered[entity.plan.table.name]
    key = [column.name for column in entity.plan.key]
    if not set(key) <= columns:
        assert back == []
        return
    paths = [slot.path for slot in entity.plan.slots]
    decoded = [dict(zip(paths, entity.decode(tree), strict=False)) for tree in trees]
    # What no item reads may be known all the same: of a boolean, from an index that the item is in.
    wanted = {tuple(row[name] for name in key): row for row in decoded}
    assert len(back) == len(wanted)
    for row in back:
        one = wanted[tuple(row[name] for name in key)]
        assert {name: value for name, value in row.items() if name in one} == {
            name: one[name] for name in row if name in one
        }


def _items_again(
    checked: Checked, source: SqlSource, back: dict[str, list[dict[str, Any]]], items: list[Item]
) -> None:
    """The rows as tables in memory make the same items."""
    facts = source.facts()
    tables = {
        facts.tables[name].real: [
            {column.real: row.get(column.name) for column in facts.tables[name].columns} for row in rows
        ]
        for name, rows in back.items()
    }
    memory = MemorySource(facts, tables | {NO_TABLE.real: [{"single": 1}]})
    read = [one.table for plan in checked.plans for one in plan.joins]
    read += [one.table for plan in checked.plans for one in plan.collections]
    if any(table.real not in tables for table in read):
        return  # of a table that is no entity no row comes back, and its values stand in others' items
    again = [
        item for one in checked.entities for item in _stored(one, memory.read_page(one.plan, None, None))
    ]
    assert Counter(map(repr, map(_sorted, again))) == Counter(map(repr, map(_sorted, items)))


def _sorted(item: Item) -> list[tuple[str, Any]]:
    return sorted(item.items())
