"""Which attributes name the rows of an answer."""

from __future__ import annotations

import pytest

from migrator.mapping.patterns.diff import row_key
from tests.golden.patterns import checked

QUERY = 'params: {tenant: text}\nquery: {key: ["EVENT#{tenant}"]}\n'
GET = 'params: {tenant: text, id: integer}\nget: {key: ["EVENT#{tenant}", "E#{id:04}"]}\n'


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        (QUERY + "returns: [n, id]", ("id",)),
        (QUERY + "returns: [n, kind]", None),
        (QUERY + "returns: [PK, SK, n]", ("PK", "SK")),
        (QUERY + "returns: [SK, n]", None),
        (GET + "returns: [n]", ()),
        (QUERY + "returns: {all: {type: Event, one: true, attributes: [n]}}\nsql: {all: SELECT 1}", ()),
        (QUERY + "returns: {all: {type: Event, attributes: [id, n]}}\nsql: {all: SELECT 1}", ("id",)),
    ],
)
def test_it_is_the_rows_key_the_items_key_or_nothing_where_there_is_one(
    pattern: str, named: tuple[str, ...] | None
) -> None:
    made = checked(pattern)
    found = made.mapping.patterns["p"]
    plans = [entity.plan for entity in made.entities]
    assert row_key(made.mapping, plans, found, found.parts[0]) == named
