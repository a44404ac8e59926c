"""Objects that items point to and S3 has not: whose they are, and what becomes of it at a second look."""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from migrator.dynamodb.admin import DynamoTableAdmin
from migrator.dynamodb.client import dynamodb_client, service_client
from migrator.dynamodb.objects import S3Objects
from migrator.dynamodb.store import DynamoStore
from migrator.journal.runs import SqlJournal
from migrator.mapping.check.check import check_mapping
from migrator.mapping.items.items import items_for
from migrator.mapping.model.journal import Finding, Run, RunIdentity
from migrator.mapping.model.live import Root
from migrator.mapping.model.results import VerifyResult
from migrator.mapping.model.table import ItemKey, item_key_text
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from migrator.stages.verify.page_check import Recheck
from migrator.stages.verify.stage import Verify
from tests import pins
from tests.fakes.progress import Silent
from tests.support_fence import OF_A_STILL_SOURCE, no_fence
from tests.support_items import put_items
from tests.support_mapping import parse_mapping

TEXT = """
mapping: 1
table: {name: %s, key: [PK, SK], type: type}
entities:
  document:
    items:
      Document: {key: ["DOC#{id}", META], attributes: {body: {from: body, to: s3}}}
      Title: {key: ["DOC#{id}", TITLE], attributes: {id: id}}
"""
BODIES = {1: "first", 2: "second", 3: "second"}


class Archive:
    """Three documents whose items are stored, and whose bodies are not."""

    def __init__(self, path: Path, endpoint: str) -> None:
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE document (id INTEGER PRIMARY KEY, body TEXT)")
        connection.executemany("INSERT INTO document VALUES (?, ?)", BODIES.items())
        connection.commit()
        connection.close()
        self.source = SqlSource(source_url(f"sqlite:///{path}"))
        text = TEXT % f"T{secrets.token_hex(6)}"
        self.checked = check_mapping(parse_mapping(text, "m.yaml"), self.source.facts())
        self.design = self.checked.mapping.table
        client = dynamodb_client(region=None, profile=None, endpoint=endpoint)
        DynamoTableAdmin(client).create(self.design)
        self.store = DynamoStore(client, self.design, no_fence)
        s3 = service_client("s3", region=None, profile=None, endpoint=endpoint, connections=2)
        self.objects = S3Objects(s3, f"bucket-{secrets.token_hex(6)}", "")
        self.objects.make_bucket()
        self.journal = SqlJournal.in_memory()

    def keep(self, *bodies: str) -> None:
        self.objects.put({hashlib.sha256(one.encode()).hexdigest(): one.encode() for one in bodies})

    def verify(self, meanwhile: Callable[[], None] = lambda: None) -> tuple[VerifyResult, list[Finding]]:
        run = self.journal.start_run(RunIdentity("verify", "job", "table", secrets.token_hex(2), ""))
        entities = {one.name: one for one in self.checked.entities}
        look = Recheck(
            *(self.source, self.store, self.journal, entities, self.design, time.time, self.objects)
        )

        def confirm(of: Run) -> dict[Root, set[ItemKey]]:
            meanwhile()
            return look.confirm(of)

        given = {**OF_A_STILL_SOURCE, "confirm": confirm}
        stage = Verify(self.source, self.store, self.journal, Silent(), objects=self.objects, **given)
        return stage.run(run, self.checked.entities), list(self.journal.findings(run))


@pytest.fixture
def archive(tmp_path: Path, dynamodb_url: str) -> Iterator[Archive]:
    made = Archive(tmp_path / "documents.db", dynamodb_url)
    (entity,) = made.checked.entities
    rows = made.source.read_page(entity.plan, None, None)
    put_items(made.store, [item for row in rows for item in items_for(entity, row)])
    yield made
    made.source.close()
    made.journal.close()


def test_each_row_pointing_to_a_missing_object_is_named(archive: Archive) -> None:
    archive.keep("first")
    result, found = archive.verify()
    assert {(one.kind, one.entity, one.source_key, one.item_key) for one in found} == {
        ("missing", "document", f"[{number}]", item_key_text((f"DOC#{number}", "META"))) for number in (2, 3)
    }
    assert all(pins.said(one.reason, "points") for one in found)
    assert result.confirmed == {("document", f"[{number}]"): {(f"DOC#{number}", "META")} for number in (2, 3)}


def test_change_before_the_second_look_is_not_a_difference(archive: Archive) -> None:
    result, found = archive.verify(lambda: archive.keep(*BODIES.values()))
    assert (found, result.confirmed, result.findings) == ([], {}, {})
