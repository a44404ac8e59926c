"""Texts that are no mapping, and revisions of those that are."""

from __future__ import annotations

import pytest

from migrator.errors import MappingError
from migrator.mapping.check import check_mapping
from migrator.mapping.parse import examine_mapping, parse_mapping
from tests.golden.heart import HEAD, check
from tests.unit.mapping.test_check import PATTERN, SCHEMA, USER


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "this is no mapping"),
        ("just words", "this is no mapping"),
        ("- a\n- b", "this is no mapping"),
        ("a: [", "not YAML"),
        ("a: 1\na: 2", "stands here twice"),
        ("\x00", "not YAML"),
        ("mapping: 2", "'table' is missing"),
        ("&a [*a]", "nested deeper"),
        ("a: !!python/name:os.system", "has no meaning here"),
        ("? [a, b]\n: c", "a name must be one word"),
    ],
)
def test_what_is_no_mapping_says_so(text: str, message: str) -> None:
    with pytest.raises(MappingError) as caught:
        parse_mapping(text, "m.yaml")
    assert message in str(caught.value)


def test_aliases_of_aliases_end_in_a_message() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(MappingError, match="it is not a mapping"):
        parse_mapping("\n".join(lines), "m.yaml")


def test_access_patterns_do_not_change_the_revision() -> None:
    one = check(PATTERN % 'query: {key: ["USER#{id}"]}', SCHEMA).mapping
    other = check(PATTERN.split("access_patterns")[0], SCHEMA).mapping
    assert one.revision == other.revision
    assert one.revision != check(USER % "keep: [email]", SCHEMA).mapping.revision


def test_a_good_mapping_has_no_faults() -> None:
    parsed = examine_mapping(HEAD + USER % "keep: [email]", "m.yaml")
    assert parsed.faults == ()
    assert check_mapping(parsed, SCHEMA).warnings == ()
