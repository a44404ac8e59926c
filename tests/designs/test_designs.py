"""The designs of the seed articles, moved from every engine: their items, their indexes, and every one of their queries."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from migrator.wiring import read_mapping
from tests.designs.golden import DESIGNS, GOLDEN, NAMES, exactly, read_golden, rows_exactly, script_of
from tests.designs.moved import Moved, moved
from tests.language.conftest import database_on
from tests.language.engines import ENGINES

FOLDERS = {".yaml": DESIGNS, ".sql": DESIGNS, ".md": DESIGNS, "golden": GOLDEN}

# One worker takes all tests of one design on one engine, so that it is moved once.
EVERYWHERE = [
    pytest.param((name, engine), id=f"{name}-{engine}", marks=pytest.mark.xdist_group(f"{name}-{engine}"))
    for name, engine in itertools.product(NAMES, ENGINES)
]


@pytest.fixture(scope="module", params=EVERYWHERE)
def design(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, dynamodb_url: str
) -> Iterator[Moved]:
    name, engine = request.param
    url = database_on(engine, request, tmp_path_factory.mktemp(name))(script_of(name, engine))
    with moved(name, url, dynamodb_url) as made:
        yield made


def test_a_design_has_all_of_its_files() -> None:
    stems = {
        ending: {path.stem for path in folder.glob(f"*{'.yaml' if ending == 'golden' else ending}")}
        for ending, folder in FOLDERS.items()
    }
    assert NAMES
    assert all(found == set(NAMES) for found in stems.values()), stems


def test_the_items_are_the_articles(design: Moved) -> None:
    golden = design.golden
    assert design.backfilled.findings == {}
    stored = {design.store.design.key_of(item): item for item in design.items()}
    for item in golden.items:
        key = design.store.design.key_of(item)
        assert key in stored, f"{key} is not stored; there are {sorted(stored)}"
        assert exactly([stored[key]]) == exactly([item])
    assert not set(golden.absent) & set(stored)
    assert len(stored) == golden.count


def test_a_golden_item_stands_for_every_type(design: Moved) -> None:
    types = {item.type for entity in design.checked.mapping.entities.values() for item in entity.items}
    assert {design.store.design.type_of(item) for item in design.golden.items} == types


def test_an_index_has_the_items_that_it_should_and_no_others(design: Moved) -> None:
    for index, keys in design.golden.in_index.items():
        assert [list(key) for key in design.entries(index)] == keys, index


def test_every_golden_query_has_its_answer_on_both_sides(design: Moved) -> None:
    for query in design.golden.queries:
        answer = design.ask(query)
        order = answer.pattern.order
        found = {one.part.name: _ordered(one.items, order) for one in answer.parts}
        assert found == {name: _ordered(rows, order) for name, rows in query.answer.items()}, query.name
        assert answer.same, (query.name, {one.part.name: one.rows for one in answer.parts})


@pytest.mark.parametrize("name", NAMES)
def test_every_access_pattern_is_asked(name: str) -> None:
    patterns = read_mapping(DESIGNS / f"{name}.yaml").mapping.patterns
    assert {query.pattern for query in read_golden(name).queries} == set(patterns)


def test_verify_finds_nothing(design: Moved) -> None:
    result = design.verify()
    assert result.findings == {}, design.journal.findings(result.run)
    assert result.scanned == design.golden.count


def _ordered(rows: list[Any], order: str) -> list[Any]:
    """The rows in exact form, in an order of their own where the pattern's does not count."""
    exact = rows_exactly(rows)
    return exact if order == "exact" else sorted(exact, key=repr)
