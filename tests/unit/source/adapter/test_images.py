from __future__ import annotations

import pytest

from migrator.mapping.model.facts import Column, Kind, KindName
from migrator.source.adapter.images import EVERY_SETTING, fits, settings_for


def column(kind: KindName, declared: str) -> Column:
    return Column("a", "a", Kind(kind), True, declared)


@pytest.mark.parametrize(
    ("kind", "declared", "names"),
    [
        ("integer", "integer", ()),
        ("uuid", "uuid", ()),
        ("text", "character varying(20)", ()),
        ("text", "citext", ()),
        ("float", "double precision", ("extra_float_digits",)),
        ("timestamp", "timestamp with time zone", ("DateStyle",)),
        ("binary", "bytea", ("bytea_output",)),
        ("text", "interval", EVERY_SETTING),
        ("list", "timestamp[]", EVERY_SETTING),
        ("unknown", "tstzrange", EVERY_SETTING),
    ],
)
def test_image_depends_on_the_settings_that_format_its_columns(
    kind: KindName, declared: str, names: tuple[str, ...]
) -> None:
    assert settings_for([column(kind, declared)]) == names


def test_each_setting_is_named_once() -> None:
    assert settings_for([column("float", "real"), column("float", "real"), column("date", "date")]) == (
        "extra_float_digits",
        "DateStyle",
    )


def test_every_session_fits_if_nothing_depends_on_a_setting() -> None:
    assert fits(()) == "true"
    assert fits(("DateStyle", "TimeZone")) == (
        "current_setting('DateStyle') LIKE 'ISO%' AND current_setting('TimeZone') = 'UTC'"
    )
