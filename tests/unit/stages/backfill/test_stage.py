from __future__ import annotations

from migrator.journal.runs import SqlJournal
from migrator.mapping.model.journal import RunIdentity
from migrator.stages.backfill.stage import plan_pages
from tests.fakes.progress import Silent
from tests.fakes.source import MemorySource
from tests.support_source import facts_by_hand, plan_of, rows_of_the_schema


class RowPart(Silent):
    def __init__(self) -> None:
        self.planned: list[int] = []

    def page_planned(self, entity: str, number: int) -> None:
        self.planned.append(number)


def test_each_page_is_reported_only_when_planned() -> None:
    facts = facts_by_hand()
    source, journal, told = MemorySource(facts, rows_of_the_schema()), SqlJournal.in_memory(), RowPart()
    run = journal.start_run(RunIdentity("backfill", "shop", "t", "r"))
    plan = plan_of(facts.tables["by_integer"])
    for _ in range(2):
        plan_pages(source, journal, run, plan, 1, told)
    _, planned = journal.page_counts(run, plan.entity.name)
    assert told.planned == list(range(1, planned + 1))
    assert planned > 2
    journal.close()
