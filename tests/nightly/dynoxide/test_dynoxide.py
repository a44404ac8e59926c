"""Jobs on dynoxide, whose program is on the PATH: what a kill leaves of its tables."""

from __future__ import annotations

import os
import secrets
import signal
import time
from pathlib import Path

import pytest

from migrator.dynamodb import embedded
from migrator.dynamodb.admin import DynamoTableAdmin
from migrator.dynamodb.client import DYNOXIDE, dynamodb_client
from migrator.dynamodb.store import DynamoStore
from migrator.mapping.model.table import KeyAttribute, TableDesign
from tests.journeys.command import project
from tests.support_fence import no_fence
from tests.support_items import put_items
from tests.support_source_databases import make_sqlite

pytestmark = pytest.mark.dynamodb
DESIGN = TableDesign("Shop", (KeyAttribute("PK"), KeyAttribute("SK")), "type")
TEXT = """
mapping: 1
table: {name: Shop, key: [PK, SK], type: type, ttl: expiresAt}
entities:
  by_integer: {items: {Thing: {key: ["THING#{k}", M], keep: all}}}
"""


def kill(home: Path) -> None:
    server = embedded.running(home)
    assert server is not None
    os.kill(server.pid, signal.SIGKILL)
    while embedded.running(home):
        time.sleep(0.01)


def test_a_job_loses_nothing_by_kills_of_its_server(tmp_path: Path) -> None:
    """Between any two commands, and the table stays the one that was written to."""
    made = project(
        tmp_path, make_sqlite(tmp_path / "shop.db"), DYNOXIDE, f"T{secrets.token_hex(4)}", text=TEXT
    )
    job, home = str(made.job), tmp_path / "home" / DYNOXIDE
    made.environment["MIGRATOR_HOME"] = str(tmp_path / "home")
    try:
        for command in ("table create", "capture install", "backfill", "verify", "relay --once", "verify"):
            made.done(*command.split(), job)
            kill(home)
        assert made.done("verify", job, "--json").data["clean"]
        assert made.done("local").code == 0
    finally:
        assert made.done("local", "stop").code == 0


def test_each_put_that_was_answered_is_there_after_a_kill(tmp_path: Path) -> None:
    home = tmp_path / DYNOXIDE
    written = 0
    try:
        for life in range(4):
            client = dynamodb_client(
                region=None, profile=None, endpoint=embedded.ensure_running(home, lasting=True)
            )
            if not life:
                DynamoTableAdmin(client).create(DESIGN)
            store = DynamoStore(client, DESIGN, no_fence)
            assert sum(len(page.items) for page in store.scan(0, 1)) == written
            for number in range(50):
                put_items(store, [{"PK": "a", "SK": f"{life}#{number}", "type": "T"}])
            written += 50
            kill(home)
    finally:
        embedded.stop(home)
