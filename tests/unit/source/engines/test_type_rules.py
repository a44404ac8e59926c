from __future__ import annotations

import runpy
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from migrator.source.engines.catalogue import TypeRule
from migrator.source.engines.mysql import facts
from migrator.source.engines.postgresql import types
from migrator.source.engines.sqlite import facts as sqlite_facts

DOCS = Path(__file__).resolve().parents[4] / "docs"


def test_the_page_of_types_is_what_the_tables_say() -> None:
    made = runpy.run_path(str(DOCS / "generate_types.py"))["page"]()
    assert (DOCS / "types.md").read_text(encoding="utf-8") == made, ".ci/pages writes it anew"


@pytest.mark.parametrize("rules", [sqlite_facts.RULES, types.RULES, facts.RULES])
def test_a_type_has_one_rule_an_example_and_a_sentence(rules: Sequence[TypeRule]) -> None:
    names = Counter(name for rule in rules for name in rule.names)
    assert [name for name, count in names.items() if count > 1] == []
    for rule in rules:
        refused = rule.kind.name == "unknown"
        assert refused == (rule.form == "none") == bool(rule.kind.instead)
        assert refused or all(rule.example)
        assert rule.rule.endswith(".")
