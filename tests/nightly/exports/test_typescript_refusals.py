"""What ElectroDB cannot say is refused with all of it, and everything shipped can be said."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.features.exports.electrodb import electrodb_typescript
from migrator.runtime.errors import SettingsError
from tests import pins
from tests.exports.typescript import HEAD, opened, opened_design, sqlite_with
from tools.pages.golden import NAMES, ROOT

ODD = """
CREATE TABLE odd (id INTEGER NOT NULL PRIMARY KEY, "a.b" TEXT, "constructor" TEXT, "Unit Price" NUMERIC(8, 2), photo BLOB,
  rate REAL NOT NULL, tenant TEXT, region TEXT);
"""
MAPPING = """
mapping: 1
table:
  name: Odd
  key: [PK, {name: SK, type: number}]
  type: type
  indexes:
    ByTenant: {key: [[tenant, region], ["a.b"]]}
    ByRate: {key: [RatePK, RateSK]}
entities:
  odd:
    items:
      Odd: {key: ["ODD#{id}", "{id}"], ByRate: ["RATE#{rate}", "{id|json}"], keep: all}
access_patterns:
  of_rate:
    params: {rate: number}
    query: {index: ByRate, key: ["RATE#{rate}"]}
    returns: [id]
    sql: SELECT id FROM odd WHERE rate = :rate
"""
REFUSED = {
    "odd.items.Odd.RatePK: the text of a value whose form is not sure (float); give it a format or a filter",
    "odd.items.Odd.RateSK: the filter json",
    "table.indexes.ByTenant: a key of several attributes",
    "Odd.constructor: every object of JavaScript has a property of this name",
    "access_patterns.of_rate: the text of a value whose form is not sure (number); give it a format or a filter",
    "table.key.SK: ElectroDB's keys are texts here, not number",
    "Odd.a.b: ElectroDB allows only letters, digits and _; name the attribute otherwise",
    "Odd.Unit Price: ElectroDB allows only letters, digits and _; name the attribute otherwise",
}


def test_all_inexpressible_parts_are_named_at_once(tmp_path: Path) -> None:
    mapping = tmp_path / "odd.yaml"
    mapping.write_text(MAPPING)
    with (
        opened(mapping, sqlite_with(tmp_path / "odd.db", ODD)) as described,
        pytest.raises(SettingsError) as refused,
    ):
        electrodb_typescript(described.model, HEAD)
    first, *reasons = str(refused.value).splitlines()
    assert first == pins.text()
    assert {reason.strip() for reason in reasons} == REFUSED


@pytest.mark.parametrize("name", NAMES)
def test_every_design_can_be_expressed_and_is_stable(name: str, tmp_path: Path) -> None:
    with opened_design(name, tmp_path) as described:
        text = electrodb_typescript(described.model, HEAD)
        assert text == electrodb_typescript(described.model, HEAD)


def test_the_language_can_express_the_shop(tmp_path: Path) -> None:
    script = (ROOT / "docker" / "shop" / "schema.sql").read_text()
    with opened(ROOT / "mappings" / "ecommerce.yaml", sqlite_with(tmp_path / "shop.db", script)) as described:
        assert "recentOrders(" in electrodb_typescript(described.model, HEAD)
