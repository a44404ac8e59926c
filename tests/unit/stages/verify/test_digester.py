"""An item has one digest, however the table writes it, and another one than every other item."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.mapping.items.native import _native
from migrator.mapping.model.edges import WiredItem
from migrator.mapping.model.table import KeyAttribute, TableDesign
from migrator.stages.verify.digests import KEY_BYTES, Digester
from tests.golden import heart
from tests.unit.mapping.items.test_items import MANY

TABLE = TableDesign("Shop", (KeyAttribute("PK"), KeyAttribute("SK")), "type")
NATIVE, PORTABLE = (Digester(TABLE, bytes(range(KEY_BYTES))) for _ in range(2))
PORTABLE.native = None
ITEM: WiredItem = {
    "PK": {"S": "A"},
    "_tk": {"N": "1"},
    "_rev": {"S": "r"},
    "a": {"S": "1"},
    "b": {"N": "1"},
    "flags": {"SS": ["x", "y"]},
    "lines": {"L": [{"M": {"n": {"N": "1"}, "more": {"L": [{"NULL": True}, {"BS": ["AA==", "/w=="]}]}}}, {"S": "1"}]},
    "none": {"M": {}},
}  # fmt: skip
CHANGES: dict[str, Callable[[Any], Any]] = {
    "a value": lambda item: item["a"].update(S="2"),
    "a type": lambda item: item.update(a={"N": "1"}),
    "two values changed places": lambda item: item.update(a={"S": "x"}, c={"S": "1"}),
    "a name": lambda item: item.update(A=item.pop("a")),
    "an attribute too many": lambda item: item.update(extra={"S": ""}),
    "an attribute too few": lambda item: item.pop("a"),
    "a member of a set": lambda item: item["flags"]["SS"].pop(),
    "a set that is a list": lambda item: item.update(flags={"L": [{"S": "x"}, {"S": "y"}]}),
    "the order of a list": lambda item: item["lines"]["L"].reverse(),
    "an element twice": lambda item: item["lines"]["L"].append({"S": "1"}),
    "an empty list for an empty map": lambda item: item.update(none={"L": []}),
    "deep in a list": lambda item: item["lines"]["L"][0]["M"]["more"]["L"].pop(0),
    "deep in a map": lambda item: item["none"]["M"].update(a={"M": {"a": {"S": ""}}}),
    "a name that is a ticket's, deeper": lambda item: item["none"]["M"].update(_tk={"N": "1"}),
}


@pytest.mark.parametrize("digester", [NATIVE, PORTABLE])
def test_digest_is_that_of_the_item_in_another_order(digester: Digester) -> None:
    other = heart.shuffled(ITEM)
    assert list(other) != list(ITEM)
    assert digester.of(other) == digester.of(ITEM)
    assert digester.of(
        {name: value for name, value in ITEM.items() if name not in ("_tk", "_rev")}
    ) == digester.of(ITEM)
    assert digester.of(ITEM | {"_tk": {"N": "2"}, "_rev": {"S": "s"}}) == digester.of(ITEM)


@pytest.mark.parametrize("digester", [NATIVE, PORTABLE])
def test_another_value_anywhere_has_another_digest(digester: Digester) -> None:
    digests = {digester.of(ITEM)}
    for change in CHANGES.values():
        change(item := copy.deepcopy(ITEM))
        digests.add(digester.of(item))
    assert len(digests) == len(CHANGES) + 1


def test_another_key_makes_other_digests() -> None:
    assert Digester(TABLE, bytes(KEY_BYTES)).of(ITEM) != NATIVE.of(ITEM)


@pytest.mark.skipif(sys.hash_info.algorithm != "siphash13", reason="this Python hashes by another function")
def test_native_digest_is_siphash() -> None:
    """Of one attribute it is what Python's own SipHash-1-3 with a key of zeros makes of the attribute's JSON."""
    texts = [f'"a":{{"S":"{"é" * n}{"x" * (n % 3)}"}}' for n in range(20)]
    made = subprocess.run(
        [sys.executable, "-c", f"print([hash(text.encode()) for text in {texts!r}])"],
        env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        check=True,
    )
    digester = _native.Digester(bytes(KEY_BYTES), b'"_tk"', b'"_rev"')
    assert [digester.item(b"{%b}" % text.encode()) for text in texts] == orjson.loads(made.stdout)


TEXTS = st.text(max_size=3) | st.sampled_from(["}}", '"', "\\", '{"S":', "]"])
VALUES = st.recursive(
    st.builds(lambda text: {"S": text}, TEXTS)
    | st.sampled_from([{"N": "1"}, {"NULL": True}, {"BOOL": False}])
    | st.builds(lambda members: {"SS": sorted(members)}, st.sets(TEXTS, min_size=1, max_size=3)),
    lambda inner: (
        st.builds(lambda made: {"L": made}, st.lists(inner, max_size=3))
        | st.builds(lambda made: {"M": made}, st.dictionaries(TEXTS, inner, max_size=3))
    ),
    max_leaves=6,
)
ITEMS = st.dictionaries(TEXTS, VALUES, max_size=3)


@MANY
@given(ITEMS, ITEMS)
def test_both_executors_tell_the_same_items_apart(one: WiredItem, other: WiredItem) -> None:
    for digester in (NATIVE, PORTABLE):
        assert digester.of(heart.shuffled(one)) == digester.of(one)
        assert (digester.of(one) == digester.of(other)) == (one == other)


def test_items_deeper_than_the_table_takes_have_a_digest() -> None:
    item: Any = {"S": "x"}
    for _ in range(60):
        item = {"L": [item]}
    assert NATIVE.of({"a": item}) != NATIVE.of({"a": {"L": [item]}})


# ── A page of stored items ──

SOURCE = b'{"S":"things:'


def page(text: bytes, *names: bytes) -> tuple[int, int, list[bytes], Any]:
    """How many items, how many of them were digested, those left, and the tally."""
    left, tally = list[bytes](), _native.Tally(SOURCE, names)
    assert NATIVE.native is not None
    count, digests = NATIVE.native.page(text, b'"type"', b'"_src"', {b'{"S":"T"}': tally}, left)
    return count, len(digests) // 8, left, tally


def item(**more: Any) -> bytes:
    return orjson.dumps({"_src": {"S": "things:[1]"}, "type": {"S": "T"}} | more)


def test_numbers_of_a_page_are_added_up_exactly() -> None:
    numbers = [
        "1",
        "-2",
        "0.5",
        "-1.25",
        "0.125",
        "9" * 38,
        "1E+40",
        "-0.00000000000000000001",
        "12345678901234567",
    ]
    texts = [item(n={"N": number}) for number in numbers] + [item(n={"S": "7"}), item(m={"N": "1"})]
    count, digested, left, tally = page(b",".join(texts), b'"n"')
    assert (count, digested, left) == (11, 11, [])
    assert tally.items == 11
    assert tally.sums == {(b'"n"', 0): 12345678901234566, (b'"n"', 1): 5, (b'"n"', 2): -125, (b'"n"', 3): 125}
    assert [text.decode() for _, text in tally.others] == numbers[5:8]


@pytest.mark.parametrize(
    "text",
    [
        item(_src={"S": "thing:[1]"}),
        item(_src={"S": "t"}),
        item(type={"S": "U"}),
        item(note={"S": 'a"'}),
        b'{"type":{"S":"T"}}',
        b'{"_src":{"S":"things:[1]"}}',
        b"{}",
        orjson.dumps({f"a{n}": {"N": "1"} for n in range(600)} | orjson.loads(item())),
    ],
)
def test_an_item_of_no_tally_is_left(text: bytes) -> None:
    assert page(b",".join([item(), text, item()]))[:3] == (3, 2, [text])


@pytest.mark.parametrize("size", range(1, len(item()) * 2 + 1))
def test_text_that_is_cut_off_is_no_page(size: int) -> None:
    whole = b",".join([item(), item()])
    if size in (len(item()), len(whole)):
        assert page(whole[:size])[0] == 1 + (size == len(whole))
    else:
        with pytest.raises(ValueError, match="no object"):
            page(whole[:size])


@MANY
@given(st.binary(max_size=60) | st.text(alphabet='{}[]",:SMLN\\a', max_size=60).map(str.encode))
def test_any_text_is_a_page_or_none(text: bytes) -> None:
    try:
        count = page(text, b'"a"')[0]
    except ValueError:
        return
    assert len(_native.objects(text)) == count
