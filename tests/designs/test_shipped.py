"""What is shipped beside the designs: the published schema, the list of designs, and mappings that name their schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from migrator.mapping.check.check import check_form
from migrator.settings.transforms import read_mapping
from tools.pages.designs import LISTED, listed
from tools.pages.golden import ROOT
from tools.pages.schemas import mapping_schema

SHIPPED = [
    *sorted([*(ROOT / "mappings").glob("*.yaml"), *(ROOT / "mappings").glob("*/*.yaml")]),
    ROOT / "docker" / "tables" / "mapping.yaml",
]
SCHEMA = ROOT / "mappings" / "mapping.schema.json"


def test_the_list_of_designs_is_that_of_the_designs() -> None:
    assert LISTED.read_text(encoding="utf-8") == listed(), "run `.ci/pages`"


def test_the_published_schema_is_that_of_the_command() -> None:
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == mapping_schema(), "run `.ci/pages`"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_mapping_names_its_schema_for_editors(path: Path) -> None:
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    mark, _, target = first.partition("$schema=")
    assert mark == "# yaml-language-server: "
    assert (path.parent / target).resolve() == SCHEMA


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_mapping_has_no_faults(path: Path) -> None:
    assert [fault for fault in check_form(read_mapping(path)) if not fault.warning] == []
