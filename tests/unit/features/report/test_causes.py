"""What differs, and the sentence that is told of it: cases written by hand."""

from __future__ import annotations

import json

import pytest

from migrator.features.report.causes import UNKNOWN, pairs_of, value_cause

CASES = [
    (
        "1999 19.99, 500 5.00, 1 0.01",
        "SQL's is 100 times the item: another unit, such as cents and dollars",
    ),
    ("19.99 1999", "the item is 100 times SQL's: another unit, such as cents and dollars"),
    ("1 60", "the item is 60 times SQL's: another unit, such as cents and dollars"),
    ("2 3, 4 6", "the item is 1.5 times SQL's: another unit, such as cents and dollars"),
    ("5 -5, 7.5 -7.5", "the sign is reversed"),
    ("2 3", UNKNOWN),
    ("2 3, 4 5", "the item is 1 more each time: a constant shift"),
    ("5 3, 2 0", "the item is 2 less each time: a constant shift"),
    ("2 3, 4 9", UNKNOWN),
    ("9.999 10.00, 3.14159 3.14", "the item has 2 decimals of the other's 5: rounded or cut"),
    ("3 3.2, 5 5.9", "SQL has 0 decimals of the other's 1: rounded or cut"),
    ("0 0.5, 1 7", UNKNOWN),
    (
        '"2024-05-01T10:00:00Z" "2024-05-01T08:00:00Z", "2023-01-01T00:00:00Z" "2022-12-31T22:00:00Z"',
        "the item is 2 h earlier each time: another time zone",
    ),
    (
        '"2024-05-01 10:00:00" "2024-05-01T15:30:00+00:00"',
        "the item is 5.5 h later each time: another time zone",
    ),
    ('"2024-05-01T10:00:00Z" "2024-05-01T12:00:00+02:00"', "the same moment, written in another form"),
    (
        '"2024-05-01T10:00:00.123456Z" "2024-05-01T10:00:00Z"',
        "less than a second apart: fractions of a second are rounded or cut",
    ),
    ('"2024-05-01" "2024-05-01T10:00:00Z"', "one side has only the date, the other also the time of day"),
    ('"2024-05-01T10:00:00Z" "2024-05-01T10:07:00Z"', UNKNOWN),
    ('"2024-05-01T10:00:00Z" "2024-06-01T10:00:00Z"', UNKNOWN),
    ('"Ann" "ANN", "bob" "Bob"', "differs only in upper and lower case"),
    ('" Ann" "Ann", "a  b" "a b"', "differs only in white space"),
    ('"Zo\\u00eb" "Zoe\\u0308"', "the same text in another Unicode form"),
    ('"0042" "42"', "differs only in leading zeros"),
    (
        '"abcdef" "abc", "abcxyz" "abc"',
        "the item's text is the beginning of the other's: cut at 3 characters",
    ),
    ('"abc" "abcdef", "x" "xyz"', "SQL's text is the beginning of the other's: cut"),
    ('"" null', "empty text on one side, no value on the other"),
    ('null ""', "empty text on one side, no value on the other"),
    ('9.90 "9.9", 7 "7"', "the same number; the item has it as text"),
    ('"7" 7', "the same number; SQL has it as text"),
    ('"7" 8', UNKNOWN),
    ("true 1, false 0", "the same truth; one side has it as a number or as text"),
    ('"t" true', "the same truth; one side has it as a number or as text"),
    ('"t" false', UNKNOWN),
    ('"{\\"a\\": 1}" {"a": 1}', "the same JSON; one side has it as text"),
    ("[1, 2] [2, 1]", "the same elements in another order"),
    ("[1, 2] [1, 2, 3]", UNKNOWN),
    ('"Ann" "Bob"', UNKNOWN),
    ('"Ann" "ANN", "bob" "Eve"', UNKNOWN),
]


def read(text: str) -> list[tuple[str, str]]:
    """Pairs of JSON texts, with a space between the two and a comma between pairs."""
    decoder, pieces, place = json.JSONDecoder(), [], 0
    while place < len(text):
        _, end = decoder.raw_decode(text, place)
        pieces.append(text[place:end])
        place = end + len(text[end:]) - len(text[end:].lstrip(", "))
    return list(zip(pieces[::2], pieces[1::2], strict=True))


@pytest.mark.parametrize(("pairs", "said"), CASES, ids=[case[0] for case in CASES])
def test_cause_is_shown_only_if_it_holds_for_every_pair(pairs: str, said: str) -> None:
    assert value_cause(read(pairs)) == said


def test_redacted_values_tell_nothing() -> None:
    assert value_cause([("…12ab", "…9f00")]) == UNKNOWN
    assert value_cause([("1", "100"), ("…12ab", "…9f00")]) == UNKNOWN
    assert value_cause([]) == UNKNOWN


def test_strange_values_are_no_fault() -> None:
    for text in (
        "NaN",
        "1e400",
        '"\\ud800"',
        "-0.0",
        '"9999-12-31T23:59:59Z"',
        '{"a": []}',
        "[]",
        '"1e999999999"',
    ):
        for other in ("0", '"x"', "null", "true", "[1]", '"0001-01-01T00:00:00Z"'):
            assert isinstance(value_cause([(text, other), (other, text)]), str)


def test_pairs_are_those_of_the_attribute() -> None:
    examples = [(("id", "total"), ("1", "9"), ("1", "8")), (("id",), ("2",), ("2",))]
    assert list(pairs_of("total", examples)) == [("9", "8")]


@pytest.mark.parametrize(
    "pair",
    [
        ("[" * 100_000, "1"),
        (json.dumps("[" * 100_000), "[1]"),
        ("[" * 900 + "]" * 900, "[" * 899 + "1" + "]" * 899),
        ("1", "1e999999999"),
        ("1e999999", "-1e999999"),
    ],
)
def test_values_too_deep_or_too_large_have_no_cause(pair: tuple[str, str]) -> None:
    assert value_cause([pair]) in (UNKNOWN, "the sign is reversed")
