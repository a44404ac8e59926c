"""A scan's answer that is read item by item says what it says when it is read at once."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.dynamodb.store import read_items
from migrator.mapping.items.encoder import items_in
from migrator.mapping.items.native import _native
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


READ = read_items(lambda text: [["made", item] for item in items_in(text)])


@pytest.mark.parametrize("native", [_native, None], ids=["native", "Python"])
@MANY
@given(items=ITEMS, other=st.sampled_from(OTHERS), is_first=st.booleans(), has_spaces=st.booleans())
def test_any_answer(
    native: Any, items: list[dict[str, Any]], other: dict[str, Any], is_first: bool, has_spaces: bool
) -> None:
    count = {"Count": len(items), "ScannedCount": len(items)}
    answer = {"Items": items} | other | count if is_first else other | count | {"Items": items}
    body = orjson.dumps(answer, option=orjson.OPT_INDENT_2 if has_spaces else 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("migrator.mapping.items.encoder._native", native)
        assert READ(body) == answer | {"Items": [["made", item] for item in items]}


@pytest.mark.parametrize("size", range(1, 120, 7))
def test_a_body_that_is_cut_off_is_no_answer(size: int) -> None:
    items = [{"PK": {"S": "a"}, "SK": {"N": str(number)}} for number in range(4)]
    body = orjson.dumps({"Items": items, "Count": 4})
    with pytest.raises(orjson.JSONDecodeError):
        READ(body[:size])


@pytest.mark.parametrize("body", [b"[]", b"null", b'{"Items": 7}', b'{"message": "no", "__type": "x#Y"}'])
def test_what_is_no_page_is_read_as_it_is(body: bytes) -> None:
    assert READ(body) == orjson.loads(body)
