"""The embedded server: shared, saved when stopped, empty after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.dynamodb import embedded
from migrator.dynamodb.admin import DynamoTableAdmin
from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.store import DynamoStore
from migrator.mapping.model.table import KeyAttribute, TableDesign
from migrator.runtime import logs
from migrator.runtime.errors import SettingsError
from tests import pins
from tests.forking import Python
from tests.support_fence import no_fence
from tests.support_items import put_items

DESIGN = TableDesign("Shop", (KeyAttribute("PK"), KeyAttribute("SK")), "type")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "embedded"
    yield folder
    embedded.stop(folder)


def admin(endpoint: str) -> DynamoTableAdmin:
    return DynamoTableAdmin(dynamodb_client(region=None, profile=None, endpoint=endpoint))


def store(endpoint: str) -> DynamoStore:
    return DynamoStore(dynamodb_client(region=None, profile=None, endpoint=endpoint), DESIGN, no_fence)


def test_commands_share_it_and_a_stop_saves_its_tables(home: Path) -> None:
    assert embedded.status(embedded.running(home)) == pins.text()
    assert embedded.stop(home) is False
    endpoint = embedded.ensure_running(home)
    assert embedded.ensure_running(home) == endpoint
    assert endpoint in embedded.status(embedded.running(home))
    made = admin(endpoint).create(DESIGN)
    put_items(store(endpoint), [{"PK": "a", "SK": "b", "type": "T"}])
    assert embedded.stop(home) is True
    again = embedded.ensure_running(home)
    state = admin(again).state(DESIGN)
    assert state is not None
    assert state.table_id == made.table_id
    assert store(again).get([("a", "b")]) == {("a", "b"): {"PK": "a", "SK": "b", "type": "T"}}


def test_server_begins_empty_after_a_kill_and_reports_it(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint = embedded.ensure_running(home)
    admin(endpoint).create(DESIGN)
    embedded.stop(home)
    embedded.ensure_running(home)
    server = embedded.running(home)
    assert server is not None
    os.kill(server.pid, signal.SIGKILL)
    while embedded.running(home):
        time.sleep(0.01)
    logs.configure(json=True)
    assert admin(embedded.ensure_running(home)).state(DESIGN) is None
    assert "embedded_state_discarded" in capsys.readouterr().err


def test_missing_dynoxide_is_reported_with_its_install(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SettingsError, match="npm's package @dynoxide/linux-x64"):
        embedded.ensure_running(home, lasting=True)


def test_two_processes_that_start_it_at_once_start_one(home: Path) -> None:
    code = "import sys; from pathlib import Path; from migrator.dynamodb import embedded; print(embedded.ensure_running(Path(sys.argv[1])))"
    started = [Python(["-c", code, home], stdout=subprocess.PIPE) for _ in range(2)]
    answers = [process.communicate(timeout=120)[0] for process in started]
    assert answers[0] == answers[1] != ""
    assert json.loads((home / "server.json").read_text())["port"] == int(
        answers[0].strip().rpartition(":")[2]
    )


def test_without_the_extra_it_names_the_command_that_installs_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ministack", None)
    with pins.refused(SettingsError):
        embedded.ensure_running(home)
