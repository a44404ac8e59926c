from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from migrator.mapping.check.values import meeting_items
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.mapping import Part, Pattern
from migrator.mapping.patterns.answers import Designs, kinds_for, readers_for
from migrator.mapping.patterns.diff import row_key
from tests.golden.heart import check, facts, table

KINDS = ("A", "B", "AB", "BA", "A")
"""What a table's keys begin with: A meets AB and A."""
TABLES = [f"t{number}" for number in range(len(KINDS))]
TEXT = "entities:\n" + "".join(
    f'  {name}: {{items: {{T{name}: {{key: ["{kind}{{code}}", "{{id}}"], keep: [id, code]}}}}}}\n'
    for name, kind in zip(TABLES, KINDS, strict=True)
)
CHECKED = check(TEXT, facts(*(table(name, {"id": "integer!", "code": "text"}) for name in TABLES)))


PATTERN = Pattern("p", (), "query", ())


class Walked(list[EntityPlan]):
    walks = 0

    def __iter__(self) -> Iterator[EntityPlan]:
        self.walks += 1
        return super().__iter__()


def test_the_plans_are_walked_once_for_all_patterns() -> None:
    plans = Walked(entity.plan for entity in CHECKED.entities)
    designs = Designs(plans)
    for type_ in ("", *(f"T{name}" for name in TABLES)):
        part = Part("", type_, ("id", "code"))
        readers_for(CHECKED.mapping, designs, part)
        kinds = kinds_for(designs, part)
        assert {name: kind.name for name, kind in kinds.items()} == {"id": "integer", "code": "text"}
        assert row_key(CHECKED.mapping, designs, PATTERN, part) == ("id",)
    assert plans.walks == 1


def test_items_meet_if_one_key_prefix_begins_with_the_other() -> None:
    plans = [entity.plan for entity in CHECKED.entities]
    met = [
        (one[0].entity.name, other[0].entity.name)
        for one, other in meeting_items(plans, CHECKED.mapping.table)
    ]
    meet = [
        (TABLES[one], TABLES[other])
        for one, other in combinations(range(len(KINDS)), 2)
        if KINDS[one].startswith(KINDS[other]) or KINDS[other].startswith(KINDS[one])
    ]
    assert met == meet
