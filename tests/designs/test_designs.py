"""The designs of the articles, moved from every engine: their items, their indexes, and every one of their queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from migrator.features.look.work import Look
from migrator.mapping.patterns.param_sources import AskedKey
from migrator.settings.transforms import read_mapping
from migrator.stages.design.views import Partitions
from migrator.stages.patterns.question import statement_faults
from migrator.stages.verify.scan import direct_items
from tests.designs.golden import exactly, rows_exactly, script_of
from tests.designs.moved import Moved, moved
from tests.language.conftest import database_on
from tests.language.engines import ENGINES
from tools.pages.golden import DESIGNS, GOLDEN, NAMES, read_golden

NOW_S = 1_780_000_000.0
"""In 2026, as the golden files have it."""
FOLDERS = {".yaml": DESIGNS, ".sql": DESIGNS, ".md": DESIGNS, "golden": GOLDEN}


def test_a_design_has_all_of_its_files() -> None:
    stems = {
        ending: {path.stem for path in folder.glob(f"*{'.yaml' if ending == 'golden' else ending}")}
        - {"README"}
        for ending, folder in FOLDERS.items()
    }
    assert NAMES
    assert all(found == set(NAMES) for found in stems.values()), stems


@pytest.mark.parametrize("name", NAMES)
def test_every_access_pattern_is_read(name: str) -> None:
    patterns = read_mapping(DESIGNS / f"{name}.yaml").mapping.patterns
    assert {query.pattern for query in read_golden(name).queries} == set(patterns)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", NAMES)
def test_a_design_equals_its_golden_file(
    name: str, engine: str, request: pytest.FixtureRequest, tmp_path: Path, dynamodb_url: str
) -> None:
    # One test, so that a design is moved once however the tests are spread over workers.
    url = database_on(engine, request, tmp_path)(script_of(name, engine))
    with moved(name, url, dynamodb_url) as design:
        assert not statement_faults(design.source, design.checked.mapping)
        assert design.backfilled.findings == {}
        check_items(design)
        check_indexes(design)
        check_queries(design)
        check_collections(design)
        result = design.verify()
        assert result.findings == {}, design.journal.findings(result.run)
        assert result.scanned == design.golden.count


def check_items(design: Moved) -> None:
    golden, table = design.golden, design.store.design
    stored = {table.key_of(item): item for item in design.items()}
    for item in golden.items:
        key = table.key_of(item)
        assert key in stored, f"{key} is not stored; there are {sorted(stored)}"
        assert exactly([stored[key]]) == exactly([item])
    assert not set(golden.absent) & set(stored)
    assert len(stored) == golden.count
    types = {item.type for entity in design.checked.mapping.entities.values() for item in entity.items}
    assert {table.type_of(item) for item in golden.items} == types, "an item of every type"


def check_indexes(design: Moved) -> None:
    for index, keys in design.golden.in_index.items():
        assert [list(key) for key in design.entries(index)] == keys, index


def check_queries(design: Moved) -> None:
    for query in design.golden.queries:
        answer = design.ask(query)
        order = answer.pattern.order
        found = {one.part.name: _ordered(one.items, order) for one in answer.parts}
        assert found == {name: _ordered(rows, order) for name, rows in query.answer.items()}, query.name
        assert answer.same, (query.name, {one.part.name: one.rows for one in answer.parts})


def check_collections(design: Moved) -> None:
    """Every collection of the table and of each index is found again from its key: from rows alone, and as what is stored."""
    checked, table = design.checked, design.store.design
    stored = [item for page in design.store.scan(0, 1) for item in page.items]
    partitions = Partitions(design.source, checked.mapping, checked.entities)
    look = Look(
        design.source, design.store, checked.mapping, table, checked.entities, direct_items(checked, ()), 1000
    )
    for index in filter(None, map(table.asked, (None, *(other.name for other in table.indexes)))):
        names = [attribute.name for attribute in index.attributes]
        collections: dict[tuple[Any, ...], set[tuple[Any, ...]]] = {}
        for item in stored:
            if all(item.get(name) is not None for name in names):
                partition = tuple(item[attribute.name] for attribute in index.partition)
                collections.setdefault(partition, set()).add(table.key_of(item))
        for partition, keys in collections.items():
            asked = AskedKey(index, partition)
            assert {table.key_of(item) for _, item in partitions.made(asked, NOW_S).items} == keys, asked
            looked = look.look(asked, NOW_S)
            assert {(one.key, one.state) for one in looked.items} == {(key, "same") for key in keys}, asked


def _ordered(rows: list[Any], order: str) -> list[Any]:
    """The rows in exact form, in an order of their own where the pattern's does not count."""
    exact = rows_exactly(rows)
    return exact if order == "exact" else sorted(exact, key=repr)
