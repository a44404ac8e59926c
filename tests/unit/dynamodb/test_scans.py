"""A scan's answer that is read item by item says what it says when it is read at once."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.dynamodb.store import read_as_text, read_one_by_one
from tests.unit.mapping.items.test_items import MANY

TEXTS = st.text(max_size=4) | st.sampled_from(['}},{"', '"Items":[{"', "}}]", '\\"}},{', "}},{", "a},"])
VALUES = st.recursive(
    st.builds(lambda text: {"S": text}, TEXTS) | st.sampled_from([{"N": "1"}, {"NULL": True}, {"SS": ["}},{"]}]),
    lambda inner: st.builds(lambda made: {"L": made}, st.lists(inner, max_size=3))
    | st.builds(lambda made: {"M": made}, st.dictionaries(TEXTS, inner, max_size=2)),
    max_leaves=6,
)  # fmt: skip
ITEMS = st.lists(
    st.dictionaries(TEXTS | st.sampled_from(["Items", "S", "M"]), VALUES, max_size=4), max_size=5
)
OTHERS: list[dict[str, Any]] = [
    {},
    {"LastEvaluatedKey": {"PK": {"S": '}}],"Items":[{"'}, "SK": {"B": "/w=="}}},
    {"ConsumedCapacity": {"CapacityUnits": 1.0, "Table": {"CapacityUnits": 1.0}}},
]


@MANY
@given(ITEMS, st.sampled_from(OTHERS), st.booleans(), st.booleans())
def test_any_answer(
    items: list[dict[str, Any]], other: dict[str, Any], is_first: bool, has_spaces: bool
) -> None:
    count = {"Count": len(items), "ScannedCount": len(items)}
    answer = {"Items": items} | other | count if is_first else other | count | {"Items": items}
    body = orjson.dumps(answer, option=orjson.OPT_INDENT_2 if has_spaces else 0)
    read = read_one_by_one(lambda item: ["made", item])
    assert read(body) == answer | {"Items": [["made", item] for item in items]}


@MANY
@given(ITEMS, st.sampled_from(OTHERS), st.booleans())
def test_text_of_any_answer(items: list[dict[str, Any]], other: dict[str, Any], has_spaces: bool) -> None:
    answer = {"Items": items, "Count": len(items)} | other
    read = read_as_text(lambda text: list(orjson.loads(b"[%b]" % text)))
    assert read(orjson.dumps(answer, option=orjson.OPT_INDENT_2 if has_spaces else 0)) == answer


@pytest.mark.parametrize("size", range(1, 120, 7))
def test_a_body_that_is_cut_off_is_no_answer(size: int) -> None:
    items = [{"PK": {"S": "a"}, "SK": {"N": str(number)}} for number in range(4)]
    body = orjson.dumps({"Items": items, "Count": 4})
    for read in (read_one_by_one(len), read_as_text(lambda text: list(orjson.loads(b"[%b]" % text)))):
        with pytest.raises(orjson.JSONDecodeError):
            read(body[:size])


@pytest.mark.parametrize("body", [b"[]", b"null", b'{"Items": 7}', b'{"message": "no", "__type": "x#Y"}'])
def test_what_is_no_page_is_read_as_it_is(body: bytes) -> None:
    assert read_one_by_one(len)(body) == orjson.loads(body)
