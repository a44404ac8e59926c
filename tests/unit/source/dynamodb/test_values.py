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
from migrator.source.dynamodb.finding import key_of_text, value_of, way_by
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

BY_USER = DescribedIndex("ByUser", ("user", "at"), whole=False, is_local=False)
TABLE = DescribedTable("1", {"id": "S", "n": "N"}, (BY_USER,), 10, 100)


@pytest.mark.parametrize(
    ("columns", "kind", "key"),
    [
        (["n", "id"], "key", ("id", "n")),
        (["id"], "query", ("id",)),
        (["n"], "scan", ()),
        (["user"], "index", ("user",)),
        (["at", "user"], "index", ("user", "at")),
        (["at"], "scan", ()),
        (["id", "user"], "query", ("id",)),
    ],
)
def test_documents_are_found_the_cheapest_way(columns: list[str], kind: str, key: tuple[str, ...]) -> None:
    way = way_by(columns, TABLE)
    assert (way.kind, way.key) == (kind, key)
