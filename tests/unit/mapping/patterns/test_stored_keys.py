"""Stored keys are read once per mapping and index, and found by the forms of their partition keys."""

from __future__ import annotations

import pytest

from migrator.mapping.patterns.param_sources import (
    matching_keys,
    may_give,
    reachable_keys,
    same_forms,
    stored_keys,
)
from tests.designs.golden import ROOT
from tests.support_mapping import parse_mapping

MAPPINGS = sorted((ROOT / "mappings").glob("*.yaml"))


@pytest.mark.parametrize("path", MAPPINGS, ids=lambda path: path.stem)
def test_matching_keys_are_those_of_the_same_forms(path: object) -> None:
    mapping = parse_mapping(path.read_text(encoding="utf-8"), path.stem).mapping  # type: ignore[attr-defined]
    for pattern in mapping.patterns.values():
        index = mapping.table.asked(pattern.index)
        assert index is not None
        keys = stored_keys(mapping, index)
        assert keys is stored_keys(mapping, index)
        same = [key for key in keys if same_forms(pattern.key, key.partition)]
        found = list(matching_keys(mapping, pattern.key, index))
        assert {id(key) for key in found} == {id(key) for key in same}
        reached = [
            key
            for key in same
            if all(may_give(condition, form) for condition, form in zip(pattern.sort, key.sort, strict=False))
        ]
        assert {id(key) for key in reachable_keys(mapping, pattern, index)} == {id(key) for key in reached}
