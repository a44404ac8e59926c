"""TypeScript's types of stored values."""

from __future__ import annotations

from migrator.features.exports.electrodb import type_of
from migrator.mapping.model.facts import Kind


def test_values_of_an_hstore_may_be_null() -> None:
    assert type_of(Kind("map", element=Kind("text"))) == "Record<string, string | null>"
    assert type_of(Kind("map")) == "Record<string, unknown>"
