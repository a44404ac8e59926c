"""Texts that are no mapping, and revisions of those that are."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from migrator.mapping.check.check import check_mapping
from migrator.mapping.language.document import Document, plain_of, schema_faults
from migrator.mapping.language.parse import examine_mapping
from migrator.mapping.language.value_forms import Form
from migrator.runtime.errors import MappingError
from migrator.settings.job import Settings
from tests import pins
from tests.golden.heart import HEAD, check
from tests.support_mapping import parse_mapping
from tests.unit.mapping.check.test_check import PATTERN, SCHEMA, USER


@pytest.mark.parametrize(
    "text",
    [
        "",
        "just words",
        "- a\n- b",
        "a: 1\na: 2\nb: !x y",
        "a: [",
        "mapping: 1\na: 1\na: 2",
        "\x00",
        "mapping: 2",
        "mapping: 1\nx: &a [*a]",
        "mapping: 1\na: !!python/name:os.system",
        "mapping: 1\n? [a, b]\n: c",
    ],
    ids=[
        "mapping",
        "mapping-just",
        "mapping-2",
        "mapping-3",
        "case",
        "stands-twice",
        "case-2",
        "missing",
        "nested-deeper",
        "meaning-here",
        "must-word",
    ],
)
def test_what_is_no_mapping_is_reported(text: str) -> None:
    with pytest.raises(MappingError) as caught:
        parse_mapping(text, "m.yaml")
    assert pins.said(str(caught.value))


def test_aliases_of_aliases_end_in_a_message() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pins.refused(MappingError):
        parse_mapping("\n".join(lines), "m.yaml")


@pytest.mark.parametrize("text", ["a: " + "[" * 200_000, "- " * 100_000, "a: " + "{b: " * 20_000])
def test_no_nesting_goes_through_the_end_of_the_stack(text: str) -> None:
    with pins.refused(MappingError):
        parse_mapping(text, "m.yaml")


def test_fault_names_the_line_of_an_unclosed_part() -> None:
    with pins.refused(MappingError):
        parse_mapping("mapping: 1\ntable: {name: Shop\nentities: 1\n", "m.yaml")


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("NO", "NO"),
        ("on", "on"),
        ("0o17", 15),
        ("010", 10),
        ("1_000", 1000),
        ("1e3", 1000.0),
        ("2026-01-02", "2026-01-02"),
        ("~", None),
        ("True", True),
        ("=", "="),
        (".inf", ".inf"),
        ("'1'", "1"),
        ("1:20", "1:20"),
    ],
)
def test_plain_words_are_those_of_yaml_1_2(word: str, value: object) -> None:
    assert plain_of(f"a: [{word}]") == {"a": [value]}


def test_access_patterns_do_not_change_the_revision() -> None:
    one = check(PATTERN % 'query: {key: ["USER#{id}"]}', SCHEMA).mapping
    other = check(PATTERN.split("access_patterns")[0], SCHEMA).mapping
    assert one.revision == other.revision
    assert one.revision != check(USER % "keep: [email]", SCHEMA).mapping.revision


def test_a_good_mapping_has_no_faults() -> None:
    parsed = examine_mapping(HEAD + USER % "keep: [email]", "m.yaml")
    assert parsed.faults == ()
    assert check_mapping(parsed, SCHEMA).warnings == ()


WHOLE: dict[str, Any] = {
    "mapping": 1,
    "table": {
        "name": "Shop",
        "key": ["PK", "SK"],
        "type": "type",
        "indexes": {"GSI1": {"key": ["G1", "G2"]}},
    },
    "entities": {
        "place": {"items": {"Place": {"key": ["P#{id}", "META"]}}},
        "customer": {
            "join": {"place": "place_id"},
            "where": "active",
            "items": {"Customer": {"key": ["C#{id}", "META"], "keep": ["name"], "attributes": {"n": "nick"}}},
        },
    },
    "access_patterns": {
        "by_id": {
            "params": {"id": "integer"},
            "get": {"key": ["C#{id}", "META"]},
            "returns": {"customer": {"type": "Customer", "one": True, "attributes": ["name"]}},
            "sql": {"customer": "SELECT name FROM customer WHERE id = :id"},
        }
    },
}
WRONG: list[Any] = [7, [], {"a": 1}, "", None, [[1]], True]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in inner:
        yield from places(one, (*path, name))


@pytest.mark.parametrize("place", list(places(WHOLE)), ids=lambda place: ".".join(map(str, place)))
def test_value_of_a_wrong_form_is_reported_once_not_as_missing(place: tuple[Any, ...]) -> None:
    assert not examine_mapping(json.dumps(WHOLE), "m.yaml").faults
    for wrong in WRONG:
        data = copy.deepcopy(WHOLE)
        within = data
        for part in place[:-1]:
            within = within[part]
        within[place[-1]] = wrong
        try:
            faults = examine_mapping(json.dumps(data), "m.yaml").faults
        except MappingError as error:
            faults = error.faults
        said = f"'{place[-1]}' is missing"
        assert not [fault for fault in faults if said in fault.what], (wrong, faults)


WRONG_OF_SETTINGS = [*WRONG, -1, 0.5, 10**30, math.inf, math.nan, "x", "x" * 2000, [""] * 9, [None], {"": 1}]


@pytest.mark.parametrize(
    "form", [*Form.__subclasses__(), *Settings.__subclasses__()], ids=lambda form: form.__name__
)
def test_a_fault_names_what_to_write(form: type[BaseModel]) -> None:
    for name, field in form.model_fields.items():
        for wrong in WRONG_OF_SETTINGS:
            try:
                form.model_validate({field.alias or name: wrong})
            except ValidationError as error:
                problems = [one for one in error.errors() if one["type"] not in ("shape", "value_error")]
                lines = {one["loc"][:end]: 1 for one in error.errors() for end in range(9)}
                said = "\n".join(fault.what for fault in schema_faults(error, Document("m", {}, lines), {}))
                assert not [one["msg"] for one in problems if one["msg"].lower() in said.lower()], (
                    name,
                    wrong,
                )
                assert "another form" not in said, (name, wrong, problems)


def test_a_place_of_several_forms_has_one_fault() -> None:
    text = json.dumps(WHOLE).replace('"active"', '{"a": {}}')
    fault, *others = examine_mapping(text, "m.yaml").faults
    assert not others
    assert fault.what.startswith("write one text here: `a: …`; or write a whole number here; or")


def test_job_passed_as_a_mapping_is_reported_as_one() -> None:
    job = "job: 1\nmapping: shop.yaml\nsource: {url: sqlite:///shop.db}\ntarget: embedded\n"
    for text in (job, job.removeprefix("job: 1\n")):
        with pins.refused(MappingError, "wanted") as caught:
            parse_mapping(text, "m.yaml")
        (fault,) = caught.value.faults
        assert pins.said(fault.what, "names")


@pytest.mark.parametrize(
    ("written", "calls_per_s"), [("12.5/s", 12.5), ("300/min", 5.0), ("36/h", 0.01), ("86400/day", 1.0)]
)
def test_a_frequency_is_calls_a_second(written: str, calls_per_s: float) -> None:
    data = copy.deepcopy(WHOLE)
    pattern = next(iter(data["access_patterns"]))
    data["access_patterns"][pattern]["frequency"] = written
    assert parse_mapping(json.dumps(data), "m.yaml").mapping.patterns[pattern].calls_per_s == calls_per_s


@pytest.mark.parametrize("written", ["often", "12.5", "-1/s", "1/month", 5, "1e9/s", ["1/s"]])
def test_frequency_in_other_words_is_reported_with_its_syntax(written: object) -> None:
    data = copy.deepcopy(WHOLE)
    pattern = next(iter(data["access_patterns"]))
    data["access_patterns"][pattern]["frequency"] = written
    (fault,) = examine_mapping(json.dumps(data), "m.yaml").faults
    assert (fault.where, fault.what) == (f"access_patterns.{pattern}.frequency", pins.text())


def test_an_index_in_the_short_form_is_one_with_that_key() -> None:
    long = parse_mapping(INDEXED % "{key: [GSI1PK, {name: at, type: number}]}", "m.yaml").mapping
    short = parse_mapping(INDEXED % "[GSI1PK, {name: at, type: number}]", "m.yaml").mapping
    assert short.table == long.table


@pytest.mark.parametrize("wrong", ["[]", "[A, B, C]", "GSI1PK", "[7]"])
def test_a_wrong_index_is_named_in_the_message(wrong: str) -> None:
    with pytest.raises(MappingError, match=r"table\.indexes\.GSI1"):
        parse_mapping(INDEXED % wrong, "m.yaml")


@pytest.mark.parametrize(
    ("place", "written", "advice"),
    [
        (("table", "key"), "PK", "`key: […]`"),
        (("table", "key"), {"pk": "PK", "sk": "SK"}, "`key: […]`"),
        (("table", "indexes"), ["GSI1"], "`indexes: {name: value}`"),
        (("table", "indexes", "GSI1"), "G1", "a list or a map"),
        (("table", "ttl"), ["expires"], "`ttl: …`"),
        (("entities", "place", "items", "Place", "attributes"), ["id"], "`attributes: {name: value}`"),
        (("access_patterns", "by_id", "get"), ["C#{id}", "META"], "`get: {key: […]}`"),
        (("access_patterns", "by_id", "get", "key"), "C#{id}", "`key: […]`"),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else str(value)[:9],
)
def test_a_value_of_a_wrong_shape_is_one_fault_with_its_word(
    place: tuple[str, ...], written: object, advice: str
) -> None:
    data = copy.deepcopy(WHOLE)
    data["entities"]["place"]["items"]["Place"]["GSI1"] = ["P", "Q"]
    within = data
    for part in place[:-1]:
        within = within[part]
    within[place[-1]] = written
    try:
        faults = examine_mapping(json.dumps(data), "m.yaml").faults
    except MappingError as error:
        faults = error.faults
    assert [(fault.where, advice in fault.what) for fault in faults] == [(".".join(place), True)]


INDEXED = """
mapping: 1
table: {name: Shop, key: [PK, SK], type: type, indexes: {GSI1: %s}}
entities: {users: {items: {User: {key: ["USER#{id}", META]}}}}
"""
