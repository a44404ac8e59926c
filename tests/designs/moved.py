"""One design moved into a table by the product's own stages."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from migrator.cli.runs_text import Lines
from migrator.dynamodb.admin import DynamoTableAdmin
from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.store import DynamoStore
from migrator.journal.runs import SqlJournal
from migrator.mapping.check.check import Checked
from migrator.mapping.items.wire import decode_item
from migrator.mapping.model.journal import RunIdentity, RunKind
from migrator.mapping.model.results import Answer, BackfillResult, VerifyResult
from migrator.mapping.model.table import Item, ItemKey
from migrator.mapping.patterns.params import read_params
from migrator.runtime.logs import get_logger
from migrator.runtime.values import replace
from migrator.settings.job import SourceSettings
from migrator.settings.transforms import checked_on, read_mapping
from migrator.stages.backfill.stage import Backfill
from migrator.stages.backfill.write import Claims
from migrator.stages.patterns.question import ask
from migrator.stages.session.source import JobSource, SourceWork, open_source
from migrator.stages.verify.stage import Verify
from tests.designs.golden import in_mysql
from tests.support_fence import OF_A_STILL_SOURCE, no_fence, written_alone
from tools.pages.golden import DESIGNS, Golden, GoldenQuery, read_golden


@dataclass(frozen=True)
class Moved:
    """A design's rows in a database, or old tables, and, after `backfilled`, their items in a table."""

    name: str
    golden: Golden
    checked: Checked
    source: JobSource
    store: DynamoStore
    journal: SqlJournal
    backfilled: BackfillResult

    def items(self) -> list[Item]:
        """All stored items, without the attributes that are migrator's own."""
        return [_without_own(item, self) for page in self.store.scan(0, 1) for item in page.items]

    def entries(self, index: str) -> list[ItemKey]:
        """The base keys of all items in the index, in its order."""
        design = self.store.design
        asked = design.asked(index)
        assert asked is not None, f"{self.name} has no index {index}"
        found = self.store.client.scan(TableName=design.name, IndexName=index)["Items"]
        names = [attribute.name for attribute in (*asked.attributes, *design.key)]
        ordered = sorted((decode_item(one) for one in found), key=lambda item: [item[name] for name in names])
        return [design.key_of(item) for item in ordered]

    def ask(self, query: GoldenQuery) -> Answer:
        mapping = self.checked.mapping
        pattern = mapping.patterns[query.pattern]
        plans = [entity.plan for entity in self.checked.entities]
        return ask(mapping, pattern, read_params(pattern, query.params), self.source, self.store, plans=plans)

    def verify(self) -> VerifyResult:
        run = self.journal.start_run(_identity("verify", self.store, self.checked))
        stage = Verify(
            *(self.source, self.store, self.journal, Lines(get_logger("migrator"))), **OF_A_STILL_SOURCE
        )
        return stage.run(run, self.checked.entities)


@contextmanager
def moved(name: str, url: str, endpoint: str) -> Iterator[Moved]:
    """The design on the database of this URL, moved into a table of its own that is gone afterwards."""
    mapping = DESIGNS / f"{name}.yaml"
    with TemporaryDirectory() as folder:
        if url.startswith("mysql"):
            mapping = Path(folder, mapping.name)
            mapping.write_text(
                in_mysql((DESIGNS / mapping.name).read_text(encoding="utf-8")), encoding="utf-8"
            )
        with moved_by(mapping, url, endpoint, read_golden(name)) as design:
            yield design


@contextmanager
def moved_by(mapping: Path, url: str, endpoint: str, golden: Golden) -> Iterator[Moved]:
    """The same of any mapping."""
    with moved_from(SourceSettings(url=url), mapping, endpoint, golden) as design:
        yield design


@contextmanager
def moved_from(settings: SourceSettings, mapping: Path, endpoint: str, golden: Golden) -> Iterator[Moved]:
    """The same of any source."""
    name, parsed = mapping.stem, read_mapping(mapping)
    with open_source(settings, parsed, SourceWork(workers=4)) as source:
        checked = checked_on(source, parsed)
        design = replace(checked.mapping.table, name=f"{name}-{secrets.token_hex(4)}")
        client = dynamodb_client(region=None, profile=None, endpoint=endpoint)
        table_id = DynamoTableAdmin(client).create(design).table_id
        store, journal = DynamoStore(client, design, no_fence), SqlJournal.in_memory()
        try:
            result = _backfill(checked, source, store, journal, table_id)
            yield Moved(name, golden, checked, source, store, journal, result)
        finally:
            journal.close()
            client.delete_table(TableName=design.name)


def _backfill(
    checked: Checked, source: JobSource, store: DynamoStore, journal: SqlJournal, table_id: str
) -> BackfillResult:
    entities = {entity.name: entity for entity in checked.entities}
    claims = Claims(journal, source, entities, checked.unproved, table_id, memory=None)
    stage = Backfill(source, journal, written_alone(store, claims), Lines(get_logger("migrator")))
    return stage.run(journal.start_run(_identity("backfill", store, checked)), checked.entities)


def _identity(kind: RunKind, store: DynamoStore, checked: Checked) -> RunIdentity:
    return RunIdentity(kind, "designs", store.design.name, checked.mapping.revision)


def _without_own(item: Item, one: Moved) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in one.store.design.own_attributes}
