from __future__ import annotations

import pytest

from migrator.source.transactions import key_reader, row_trees
from tests.support_source import LINE, LINES, PAIR, PURCHASE, list_of, number_of, plan_of


def test_a_key_is_read_wherever_its_columns_stand() -> None:
    plan = plan_of(PAIR, ["n", "b", "a"])
    assert key_reader(plan)((7, 2, "x")) == ("x", 2)


def test_children_go_to_the_root_that_has_their_key() -> None:
    plan = plan_of(
        PURCHASE, ["status", "id"], collections=[list_of("lines", LINE, LINES, ["product", "line_no"])]
    )
    trees = row_trees(plan, [("P", 10), ("S", 20)], [[(20, "fig", 1), (20, "pear", 2)]])
    assert trees == [("P", 10, ()), ("S", 20, (("fig", 1), ("pear", 2)))]


@pytest.mark.parametrize(("kind", "of_none"), [("count", 0), ("sum", None), ("min", None), ("max", None)])
def test_an_aggregate_of_nothing_is_null_or_zero(kind: str, of_none: int | None) -> None:
    plan = plan_of(PURCHASE, ["id"], collections=[number_of(kind, LINE, LINES, "amount")])
    assert row_trees(plan, [(10,), (20,)], [[(10, 3)]]) == [(10, 3), (20, of_none)]
