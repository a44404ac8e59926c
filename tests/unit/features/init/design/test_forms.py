"""Forms of values in the keys that `init` proposes."""

from __future__ import annotations

import pytest

from migrator.features.init.placing import equal_form, sort_form
from migrator.mapping.model.facts import Alike, Column, Kind
from migrator.mapping.model.questions import NumberSpan

INTEGER = Kind("integer")


@pytest.mark.parametrize(
    ("kind", "most", "form"),
    [
        pytest.param(INTEGER, 3, ":010", id="any 32-bit integer"),
        pytest.param(INTEGER, 99_999_999, ":010", id="two digits more than today's largest"),
        pytest.param(INTEGER, 100_000_000, ":020", id="any 64-bit integer"),
        pytest.param(INTEGER, None, ":010", id="no row"),
        pytest.param(Kind("number", scale=0, precision=4), 3, ":04", id="declared"),
        pytest.param(Kind("number", scale=2, precision=8), 3, ":09.2f", id="declared with decimals"),
        pytest.param(Kind("number", scale=2, precision=3), 512, ":013.2f", id="declared, and not enforced"),
        pytest.param(Kind("number", scale=0, precision=38), 3, ":020", id="more than a key needs"),
    ],
)
def test_width_of_a_number_leaves_room_to_grow(kind: Kind, most: int | None, form: str) -> None:
    assert sort_form(Column("n", "n", kind), NumberSpan(0, most)) == form


def test_negative_number_has_no_width() -> None:
    assert sort_form(Column("n", "n", INTEGER), NumberSpan(-1, 3)) is None


@pytest.mark.parametrize(
    ("alike", "form"),
    [((), ""), (("trailing spaces",), "|rtrim"), (("case", "trailing spaces"), "|lower|rtrim")],
)
def test_text_in_a_key_drops_what_its_collation_ignores(alike: tuple[Alike, ...], form: str) -> None:
    assert equal_form(Column("t", "t", Kind("text"), alike=alike), None, several=False) == form
