"""Texts that the source takes for one, in keys that tell them apart: every engine's collations, and what `mapping check` says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import pins
from tests.language.conftest import database_on
from tests.language.context import HEAD, checked, open_source
from tests.language.engines import ENGINES

TABLES = {
    "postgresql": """
        CREATE EXTENSION citext;
        CREATE COLLATION folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
        CREATE DOMAIN label AS citext;
        CREATE TABLE person (id integer PRIMARY KEY, folds varchar(9) COLLATE folded NOT NULL, ci citext NOT NULL,
            pads char(4) NOT NULL, loose label NOT NULL, neither varchar(9) NOT NULL, listed varchar(9))""",
    "mariadb": """
        CREATE TABLE person (id integer PRIMARY KEY, folds varchar(9) COLLATE utf8mb4_general_nopad_ci NOT NULL,
            ci varchar(9) CHARACTER SET latin1 COLLATE latin1_swedish_ci NOT NULL,
            pads varchar(9) COLLATE utf8mb4_bin NOT NULL, loose varchar(9) COLLATE utf8mb4_unicode_ci NOT NULL,
            neither varchar(9) COLLATE utf8mb4_nopad_bin NOT NULL, listed ENUM ('a', 'b'))""",
    "sqlite": """
        CREATE TABLE person (id integer PRIMARY KEY, folds text COLLATE NOCASE NOT NULL, ci varchar(9) COLLATE nocase NOT NULL,
            pads text COLLATE RTRIM NOT NULL, loose text COLLATE NOCASE NOT NULL, neither text NOT NULL, listed text);
        CREATE VIEW people AS SELECT id, folds AS name FROM person""",
}
ALIKE: dict[str, dict[str, tuple[str, ...]]] = {
    "postgresql": {"folds": ("case",), "ci": ("case",), "pads": ("trailing spaces",), "loose": ("case",)},
    "mariadb": {
        "folds": ("case",),
        "ci": ("case", "trailing spaces"),
        "pads": ("trailing spaces",),
        "loose": ("case", "trailing spaces"),
    },
    "sqlite": {"folds": ("case",), "ci": ("case",), "pads": ("trailing spaces",), "loose": ("case",)},
}
MAPPING = f"""{HEAD}
entities:
  person:
    items:
      Person:
        key: ["PERSON#{{id:04}}", "NAME#{{folds}}"]
        GSI1: ["LOOSE#{{loose}}", "{{neither}}#{{pads|rtrim}}"]
        keep: all
access_patterns:
  by_name:
    params: {{id: integer, begin: text}}
    query: {{key: ["PERSON#{{id:04}}", {{begins_with: "NAME#{{begin}}"}}]}}
    returns: [neither]
    order: any
    sql: SELECT neither FROM person WHERE id = :id AND folds LIKE CONCAT(:begin, '%')
  by_loose:
    params: {{name: text, under: optional text}}
    query: {{index: GSI1, key: ["LOOSE#{{name}}", {{ge: "{{under}}"}}]}}
    returns: [neither]
    order: any
    sql: SELECT neither FROM person WHERE folds = :name AND neither >= :under
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_values_equal_by_collation_are_read_from_the_source(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    source = open_source(database_on(engine, request, tmp_path)(TABLES[engine]), MAPPING)
    tables = source.facts().tables
    source.close()
    expected = {"id": (), "neither": (), "listed": (), **ALIKE[engine]}
    assert {column.name: column.alike for column in tables["person"].columns} == expected
    if engine == "sqlite":
        assert [column.alike for column in tables["people"].columns] == [(), ("case",)]


@pytest.mark.parametrize("engine", ENGINES)
def test_key_distinguishing_values_equal_in_the_source_is_warned(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = database_on(engine, request, tmp_path)(TABLES[engine])
    said = {one.where: one.what for one in checked(url, MAPPING).warnings if "treats" in one.what}
    differing = "case or trailing spaces" if engine == "mariadb" else "case"
    filters = "|lower|rtrim" if engine == "mariadb" else "|lower"
    assert said == {
        "entities.person.items.Person.key.1": (pins.text("texts")),
        "entities.person.items.Person.GSI1.0": (pins.text("tells", differing=differing, filters=filters)),
        "access_patterns.by_name.query.key.1": (pins.text("apart")),
        "access_patterns.by_loose.query.key.0": (
            pins.text("tells-apart", differing=differing, filters=filters)
        ),
    }
    mended = MAPPING.replace("{{", "{")
    for name in ("folds", "loose", "begin", "name"):
        mended = mended.replace(f"{{{name}}}", f"{{{name}|lower|rtrim}}")
    assert [one.what for one in checked(url, mended).warnings if "treats" in one.what] == []


def test_key_size_follows_the_character_set_of_its_columns(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    tables = """
        CREATE TABLE person (id integer PRIMARY KEY, folds varchar(255) CHARACTER SET utf8mb3 COLLATE utf8mb3_nopad_bin,
            pads varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin, neither varchar(340) CHARACTER SET latin1,
            loose varchar(900) CHARACTER SET ascii)"""
    mapping = f"""{HEAD}
entities:
  person:
    items:
      A: {{key: ["A#{{id:04}}", "NAME#{{folds}}"]}}
      B: {{key: ["B#{{id:04}}", "NAME#{{pads}}"]}}
      C: {{key: ["C#{{id:04}}", "{{neither|lower|rtrim}}"]}}
      D: {{key: ["D#{{id:04}}", "{{loose|lower|rtrim}}"]}}
"""
    found = checked(database_on("mariadb", request, tmp_path)(tables), mapping).warnings
    (warning,) = [one for one in found if "can take" in one.what]
    assert (warning.where, "1025 bytes" in warning.what) == ("entities.person.items.B.key.1", True)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_plain_attribute_that_is_a_key_is_checked(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    mapping = MAPPING.replace("[GSI2PK, GSI2SK]", "[folds, neither]").replace("  by_loose:", "  by_folds:")
    mapping = mapping.replace(
        '{index: GSI1, key: ["LOOSE#{name}", {ge: "{under}"}]}', '{index: GSI2, key: ["{name}"]}'
    )
    mapping = mapping.replace("name: text, under: optional text", "name: text").replace(
        " AND neither >= :under", ""
    )
    said = [
        one.where for one in checked(database_on(engine, request, tmp_path)(TABLES[engine]), mapping).warnings
    ]
    assert "entities.person.items.Person.attributes.folds" in said
    assert "access_patterns.by_folds.query.key.0" in said
