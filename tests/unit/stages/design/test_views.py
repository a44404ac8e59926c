"""Item collections of real rows: which are chosen, how many are left out, and all that stand under one key."""

from __future__ import annotations

from typing import Any

import pytest

from migrator.mapping.model.report import View
from migrator.mapping.patterns.param_sources import AskedKey, RowLookup, row_lookups
from migrator.stages.design.shown import Showing
from migrator.stages.design.views import Partitions, Views, asked_key
from tests import pins
from tests.fakes.source import MemorySource
from tests.golden import heart
from tests.unit.stages.core.report_world import CHECKED, ORDERS_ROWS, SCHEMA, USERS_ROWS

NOW_S = 1_700_000_000.0
PLANS = [entity.plan for entity in CHECKED.entities]


def views_of(users: list[dict[str, Any]], orders: list[dict[str, Any]]) -> Views:
    showing = Showing(CHECKED.mapping, PLANS, whole_keys=True, whole_values=True)
    source = MemorySource(SCHEMA, {"users": users, "orders": orders})
    return Views(CHECKED.mapping, CHECKED.entities, showing, source)


def under(views: Views, key: str) -> dict[str, list[str]]:
    found, _ = views.under(key, NOW_S)
    return {view.name: [item.type for item in view.collections[0].items] for view in found}


def test_what_is_left_out_is_counted() -> None:
    orders = [{"id": n, "user_id": 1, "total": n} for n in range(1, 11)]
    users = [{"id": n, "email": f"{n}@x", "name": None} for n in range(1, 8)]
    table, *_ = views_of(users, orders).all()
    first = table.collections[0]
    assert (len(first.items), first.more) == (6, 5)
    assert (len(table.collections), table.more) == (4, 3)


def test_attributes_of_one_type_share_columns_if_some_lack_them() -> None:
    users: list[dict[str, Any]] = [
        {"id": 1, "email": None, "name": "A"},
        {"id": 2, "email": "b@x", "name": None},
    ]
    table, *_ = views_of(users, []).all()
    assert sorted(table.columns("User")) == ["email", "name"]
    assert [list(found.items[0].attributes) for found in table.collections] == [["name"], ["email"]]


def test_key_shows_its_collection_in_the_table_and_each_index() -> None:
    views = views_of(USERS_ROWS, ORDERS_ROWS)
    assert under(views, "USER#1") == {"": ["Order", "Order", "User"]}
    assert under(views, "EMAIL#secret2@x") == {"GSI1": ["User"]}
    assert under(views, "USER#9") == {}
    assert under(views, "") == {}


def test_a_masked_view_counts_as_the_whole_one_does() -> None:
    orders = [{"id": n, "user_id": 1, "total": n} for n in range(1, 11)]
    views = views_of(USERS_ROWS, orders)
    masking = Showing(CHECKED.mapping, PLANS, whole_keys=False, whole_values=False)
    shown: View = masking.view(views.all()[0])
    assert shown.collections[0].more == views.all()[0].collections[0].more == 5
    assert "secret" not in repr(shown)


# ── from a key to its rows ──

KEYS = """
entities:
  order:
    table: orders
    join: {user: user_id}
    items:
      ByNumber: {key: ["N#{id:06}", A], when: total}
      ByUser: {key: ["U#{user.email}#{id}", A], when: user.email}
      ByBoth: {key: ["{user_id}#{id}", A]}
      Everything: {key: [ALL, "{id}"]}
      Lower: {key: ["L#{user.name|lower}", A], when: user.name}
"""


@pytest.mark.parametrize(
    ("key", "columns", "values"),
    [
        ("N#000042", ("id",), (42,)),
        ("N#42", ("id",), (42,)),
        ("N#x", None, None),
        ("ALL", (), ()),
        ("L#ann", (), ()),
        ("7#42", ("id", "user_id"), (42, 7)),
        ("nothing", None, None),
    ],
)
def test_a_key_lists_the_columns_of_its_rows(
    key: str, columns: tuple[str, ...] | None, values: tuple[Any, ...] | None
) -> None:
    checked = heart.check(KEYS, SCHEMA)
    asked: AskedKey = asked_key(checked.mapping.table, None, (key,))
    found = row_lookups(checked.mapping, checked.plans[0], asked)
    if columns is None:
        assert found == []
    else:
        (lookup,) = found
        assert (lookup.lookup.columns if lookup.lookup else ()) == columns
        assert lookup.values == values


@pytest.mark.parametrize("email", ["a@x", "a#b", "#", "1#2#3", "a#1"])
def test_text_that_holds_the_separator_is_found_anyway(email: str) -> None:
    checked = heart.check(KEYS, SCHEMA)
    source = MemorySource(
        SCHEMA,
        {
            "users": [{"id": 1, "email": email, "name": None}],
            "orders": [{"id": 5, "user_id": 1, "total": None}],
        },
    )
    asked = asked_key(checked.mapping.table, None, (f"U#{email}#5",))
    made = Partitions(source, checked.mapping, checked.entities).made(asked, NOW_S)
    assert [item["type"] for _, item in made.items] == ["ByUser"]


@pytest.mark.parametrize("ending", ["", "#A"])
def test_a_key_of_separators_alone_is_looked_up_by_no_column(ending: str) -> None:
    many = "#".join(f"{{{name}}}" for name in ("id", "user.email", "user.name", "user_id", "user.id"))
    text = f"entities: {{order: {{table: orders, join: {{user: user_id}}, items: {{O: {{key: ['O#{{id}}', A], GSI1: ['{many}{ending}', A]}}}}}}}}"
    checked = heart.check(text, SCHEMA)
    asked = asked_key(checked.mapping.table, "GSI1", (f"{'#' * 900}{ending}",))
    assert row_lookups(checked.mapping, checked.plans[0], asked) == [RowLookup()]
    # None of them ends as the template does: no row is looked for.
    other = asked_key(checked.mapping.table, "GSI1", (f"{'#' * 900}B",))
    assert row_lookups(checked.mapping, checked.plans[0], other) in ([], [RowLookup()])


def test_rows_beyond_the_bound_are_reported() -> None:
    checked = heart.check(KEYS, SCHEMA)
    orders = [{"id": n, "user_id": 1, "total": None} for n in range(1, 9)]
    source = MemorySource(SCHEMA, {"users": [], "orders": orders})
    partitions = Partitions(source, checked.mapping, checked.entities, rows_at_most=5)
    made = partitions.made(asked_key(checked.mapping.table, None, ("ALL",)), NOW_S)
    assert len(made.items) == 5
    assert made.notes == [pins.text()]
