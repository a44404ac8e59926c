"""A key as a person writes it is the key as the source's driver gives it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from migrator.cli.options import row_key
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.model.facts import Column, Kind
from migrator.runtime.errors import SettingsError
from tests import pins


def entity(kind: Kind, *, loosely: bool = False) -> CompiledEntity:
    plan = SimpleNamespace(key=(Column("k", "k", kind),), loosely_typed=loosely)
    return cast(CompiledEntity, cast(Any, SimpleNamespace(name="t", plan=plan)))


@pytest.mark.parametrize(
    ("kind", "loosely", "text", "key"),
    [
        (Kind("float"), False, "0.10", "[0.1]"),
        (Kind("float"), True, "1", "[1.0]"),
        (Kind("float"), False, "-0.0", "[0.0]"),
        (Kind("number", scale=2), False, "1.1", '["1.10"]'),
        (Kind("number"), False, "1.1", '["1.1"]'),
        (Kind("number", scale=2), True, "4.0", "[4]"),
        (Kind("number", scale=2), True, "1.50", "[1.5]"),
        (Kind("integer"), False, "7", "[7]"),
        (Kind("text"), False, "7", '["7"]'),
    ],
)
def test_a_key_has_the_text_of_the_rows_own(kind: Kind, loosely: bool, text: str, key: str) -> None:
    assert row_key(entity(kind, loosely=loosely), (text,)) == key


@pytest.mark.parametrize("kind", [Kind("float"), Kind("number", scale=2), Kind("integer")])
def test_key_that_is_not_a_number_is_refused_without_its_text(kind: Kind) -> None:
    with pins.refused(SettingsError) as caught:
        row_key(entity(kind), ("secret",))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["secret", '["secret"]', "[7]"])
def test_text_for_a_binary_key_is_refused_with_its_form(text: str) -> None:
    with pins.refused(SettingsError) as caught:
        row_key(entity(Kind("binary")), (text,))
    assert """--key '[{"b64":"…"}]'""" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("loosely", [False, True])
def test_binary_key_is_written_in_base64(loosely: bool) -> None:
    assert row_key(entity(Kind("binary"), loosely=loosely), ('[{"b64":"AQI="}]',)) == '[{"b64":"AQI="}]'
