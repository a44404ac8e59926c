"""The designs of the articles, moved from old tables of DynamoDB: their items and indexes are those of their golden files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from migrator.mapping.language.document import plain_of
from migrator.stages.patterns.question import statement_faults
from tests.designs.moved import Moved
from tests.designs.old_tables import moved_tables, on_old_tables
from tests.designs.test_designs import check_collections, check_indexes, check_items, check_queries
from tools.pages.golden import NAMES, ROOT, golden_of, read_golden, value_of

BY_HAND = ROOT / "mappings" / "old_tables" / "users_and_orders.yaml"
GOLDEN = ROOT / "tests" / "golden" / "old_tables" / "users_and_orders.yaml"
INDEXES = {"Orders": {"ByUser": {"user_id": "S", "ordered": "S"}}}


SQL_ALONE = {"lookups"}
"""Designs with whole tables in one item, which is one snapshot of SQL."""


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SQL_ALONE])
def test_a_design_has_the_items_of_its_golden_file(name: str, tmp_path: Path, dynamodb_url: str) -> None:
    mapping, documents = on_old_tables(name, tmp_path)
    with moved_tables(mapping, documents, dynamodb_url, read_golden(name)) as design:
        assert design.backfilled.findings == {}
        check_items(design)
        check_indexes(design)
        check_collections(design)
        _check_verified(design)


def test_four_tables_of_one_service_become_one(dynamodb_url: str) -> None:
    written = plain_of(GOLDEN.read_text(encoding="utf-8"))
    documents = {name: [_document(one) for one in of] for name, of in written["documents"].items()}
    with moved_tables(BY_HAND, documents, dynamodb_url, golden_of(written), INDEXES) as design:
        assert not statement_faults(design.source, design.checked.mapping)
        assert design.backfilled.findings == {}
        assert {query.pattern for query in design.golden.queries} == set(design.checked.mapping.patterns)
        check_items(design)
        check_queries(design)
        check_collections(design)
        _check_verified(design)


def _check_verified(design: Moved) -> None:
    result = design.verify()
    assert result.findings == {}, design.journal.findings(result.run)
    assert result.scanned == design.golden.count


def _document(written: Any) -> Any:
    return {
        name: set(value["set"]) if isinstance(value, dict) and "set" in value else value_of(value)
        for name, value in written.items()
    }
