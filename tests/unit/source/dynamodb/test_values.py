"""Values of documents by their declared types, and places in the order of a scan."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from migrator.dynamodb.tables import DescribedIndex, DescribedTable
from migrator.mapping.items.values import Undecodable, decoder
from migrator.mapping.language.documents import kind_of_type
from migrator.mapping.model.facts import Column, TableFacts
from migrator.mapping.model.table import SetOf
from migrator.runtime.errors import RowError, SourceError, UnfitValueError
from migrator.source.dynamodb.finding import key_of_text, value_of, way_by, wired_key
from migrator.source.dynamodb.source import SegmentEnd, Stretch, place_of, segment_bounds, stretches
from tests import pins


def column(path: str, declared: str) -> Column:
    return Column(path, path, kind_of_type(declared), declared=declared)


ITEM: dict[str, Any] = {
    "text": {"S": "é"},
    "whole": {"N": "100"},
    "part": {"N": "1.50"},
    "flag": {"BOOL": False},
    "bytes": {"B": b"\x00"},
    "none": {"NULL": True},
    "texts": {"SS": ["b", "a"]},
    "numbers": {"NS": ["2", "10", "1.5"]},
    "binaries": {"BS": [b"\x01", b"\x00"]},
    "list": {"L": [{"S": "x"}, {"N": "1"}, {"NULL": True}]},
    "map": {"M": {"city": {"S": "Ulm"}, "deep": {"M": {"n": {"N": "7"}}}, "gone": {"NULL": True}}},
    "a.b": {"S": "its own name"},
    "a": {"M": {"b": {"S": "in the map"}}},
}


@pytest.mark.parametrize(
    ("path", "declared", "value"),
    [
        ("text", "text", "é"),
        ("whole", "integer", 100),
        ("part", "number(2)", Decimal("1.5")),
        ("flag", "boolean", False),
        ("bytes", "binary", b"\x00"),
        ("none", "text", None),
        ("missing", "text", None),
        ("texts", "set(text)", SetOf(["a", "b"])),
        ("numbers", "set(number)", SetOf([Decimal("1.5"), 2, 10])),
        ("list", "list", ["x", 1, None]),
        ("map.city", "text", "Ulm"),
        ("map.deep.n", "integer", 7),
        ("map.gone.n", "integer", None),
        ("map.absent.n", "integer", None),
        ("a.b", "text", "its own name"),
        ("whole", "any", 100),
        ("texts", "any", SetOf(["a", "b"])),
        ("numbers", "any", SetOf([Decimal("1.5"), 2, 10])),
        ("binaries", "any", SetOf([b"\x00", b"\x01"])),
        ("map", "json", {"city": "Ulm", "deep": {"n": 7}, "gone": None}),
    ],
)
def test_a_value_is_what_the_column_declares(path: str, declared: str, value: Any) -> None:
    found = value_of(ITEM, column(path, declared))
    assert found == value
    assert type(found) is type(value)
    decoded = decoder(kind_of_type(declared))(found)
    assert (decoded, type(decoded)) == (value, type(value))


@pytest.mark.parametrize(
    ("path", "declared"),
    [
        ("whole", "text"),
        ("text", "integer"),
        ("flag", "integer"),
        ("whole", "boolean"),
        ("texts", "list"),
        ("list", "map"),
        ("numbers", "set(text)"),
        ("text.city", "text"),
    ],
)
def test_another_type_refuses_the_row(path: str, declared: str) -> None:
    found = value_of(ITEM, column(path, declared))
    assert isinstance(found, Undecodable)
    assert pins.said(found.reason)
    assert "é" not in found.reason
    with pytest.raises(RowError):
        decoder(kind_of_type(declared))(found)


LINES = TableFacts("Lines", "Lines", (column("id", "text"), column("n", "number")), ("id", "n"))


def test_a_source_key_is_the_key_of_its_document() -> None:
    assert key_of_text(LINES, '["a",1]') == {"id": {"S": "a"}, "n": {"N": "1"}}
    assert key_of_text(LINES, '["a","1.5"]') == {"id": {"S": "a"}, "n": {"N": "1.5"}}
    for text in ('["a"]', '["a","b"]', "[1,1]", '["a",1,2]'):
        with pytest.raises(UnfitValueError):
            key_of_text(LINES, text)


# ── places ──


def test_segments_are_pages_without_a_read() -> None:
    bounds = list(segment_bounds(1000, 300, 100, None, None))
    assert [place_of(bound) for bound in bounds] == [SegmentEnd(n, 4) for n in range(3)]
    assert stretches(None, bounds[0]) == [Stretch(0, 4)]
    assert stretches(bounds[0], bounds[2]) == [Stretch(1, 4), Stretch(2, 4)]
    assert stretches(bounds[2], None) == [Stretch(3, 4)]
    assert list(segment_bounds(1000, 1, 8, None, None))[-1] == SegmentEnd(6, 8).text
    assert list(segment_bounds(0, 10, 8, None, None)) == []
    assert list(segment_bounds(5, 1, 8, bounds[0], bounds[2])) == [
        SegmentEnd(1, 4).text,
        SegmentEnd(2, 4).text,
    ]


def test_a_key_is_a_place_of_a_scan_that_is_not_divided() -> None:
    assert stretches('["a"]', '["b"]') == [Stretch(start='["a"]', stop='["b"]')]
    assert stretches(None, None) == [Stretch()]
    for after, upto in (('["a"]', SegmentEnd(1, 4).text), (SegmentEnd(0, 4).text, SegmentEnd(1, 8).text)):
        with pins.refused(SourceError):
            stretches(after, upto)


# ── ways ──

TABLE = DescribedTable(
    "1",
    {"id": "S", "n": "N"},
    (
        DescribedIndex("ByUser", {"user": "S", "at": "S"}, whole=False, is_local=False),
        DescribedIndex("ByShop", {"shop": "S", "n": "N"}, whole=False, is_local=False),
        DescribedIndex(
            "ByPlace", {"city": "S", "zip": "S", "id": "S"}, whole=True, is_local=False, partition=2
        ),
    ),
    10,
    100,
)


@pytest.mark.parametrize(
    ("columns", "filled", "kind", "key"),
    [
        ({"n": "N", "id": "S"}, (), "key", ("id", "n")),
        ({"id": "S"}, (), "query", ("id",)),
        ({"n": "N"}, (), "scan", ()),
        ({"user": "S"}, (), "scan", ()),  # documents without `at` are not in the index
        ({"user": "S"}, ("at",), "index", ("user",)),
        ({"at": "S", "user": "S"}, (), "index", ("user", "at")),
        ({"at": "S"}, ("user",), "scan", ()),
        ({"id": "S", "user": "S"}, (), "query", ("id",)),
        ({"shop": "S"}, (), "index", ("shop",)),
        ({"shop": "N"}, (), "scan", ()),  # the index contains texts only
        ({"city": "S"}, ("zip",), "scan", ()),  # a part of its partition key
        ({"zip": "S", "city": "S"}, (), "index", ("city", "zip")),
    ],
)
def test_documents_are_found_the_cheapest_way(
    columns: dict[str, str], filled: tuple[str, ...], kind: str, key: tuple[str, ...]
) -> None:
    way = way_by(columns, TABLE, filled)
    assert (way.kind, way.key) == (kind, key)


@pytest.mark.parametrize(
    ("key", "names"),
    [
        ({"id": "", "n": 1}, None),
        ({"id": "x" * 2049, "n": 1}, None),
        ({"id": "\u00e9" * 1025, "n": 1}, None),
        ({"n": 1, "id": "x" * 1025}, ("n", "id")),  # of an index, as its sort key
        ({"id": "a", "n": Decimal("NaN")}, None),
        ({"id": "a", "n": 10**38 + 1}, None),
    ],
)
def test_values_that_no_key_holds_are_not_requested(
    key: dict[str, Any], names: tuple[str, ...] | None
) -> None:
    assert wired_key(LINES, key, names) is None


def test_longest_key_is_requested() -> None:
    assert wired_key(LINES, {"id": "x" * 2048, "n": 1}) == {"id": {"S": "x" * 2048}, "n": {"N": "1"}}
