"""A command inside of the test's process is told apart from one of its own by nothing, and leaves nothing behind."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from pathlib import Path

import pytest
import structlog

from migrator.runtime.values import replace
from tests import pins
from tests.journeys.command import Project
from tests.journeys.in_process import run_here
from tests.journeys.small import small_shop


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    return small_shop(tmp_path, dynamodb_url)


@pytest.mark.parametrize(
    "words",
    [
        ["--version"],
        ["mapping", "check", "mapping.yaml"],
        ["table", "check", "shop.yaml"],
        ["backfill", "shop.yaml", "--entity", "nobody"],
        ["clean", "--all-items", "shop.yaml"],
        ["no-such-command"],
    ],
)
def test_both_ways_say_the_same(shop: Project, words: list[str]) -> None:
    shop.run("status", "shop.yaml")  # makes the journal, which is told once
    assert shop.run(*words) == replace(shop, own_process=True).run(*words)


def test_nothing_is_left_behind(shop: Project) -> None:
    def state() -> tuple[object, ...]:
        hooks = sys.unraisablehook, threading.excepthook
        log = structlog.is_configured(), structlog.get_config()["logger_factory"].__class__
        streams = sys.stdin, sys.stdout, sys.stderr
        return os.getcwd(), dict(os.environ), sys.path[:], streams, hooks, log, threading.active_count()

    before = state()
    shop.done("backfill", "shop.yaml")
    shop.run("backfill", "no-such-job.yaml")
    assert state() == before


def test_it_sees_its_own_surroundings_alone(
    shop: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIGRATOR_SOURCE_URL", "sqlite:///of-the-test.db")
    bare = {name: value for name, value in shop.environment.items() if name != "MIGRATOR_SOURCE_URL"}
    ended = run_here(["mapping", "check", "mapping.yaml", "--source", "sqlite:///shop.db"], tmp_path, bare)
    assert ended.code == 0, ended.err
    ended = run_here(["status", "shop.yaml"], tmp_path, bare)
    assert pins.said(ended.err)


def test_a_thread_that_dies_is_seen(tmp_path: Path) -> None:
    (tmp_path / "dying.py").write_text(
        "import threading\nthread = threading.Thread(target=lambda: 1 / 0)\nthread.start()\nthread.join()\n"
        "def rule(row): return {}\n"
    )
    (tmp_path / "mapping.yaml").write_text(
        "mapping: 1\ntable: {name: Shop, key: [PK, SK], type: type}\n"
        "entities: {user: {transform: dying:rule, items: {User: {key: ['U#{id}', META]}}}}\n"
    )
    words = ["mapping", "check", "mapping.yaml", "--source", "sqlite:///shop.db"]
    connection = sqlite3.connect(tmp_path / "shop.db")
    connection.execute("CREATE TABLE user (id INTEGER PRIMARY KEY)")
    connection.close()
    assert "ZeroDivisionError" in run_here(words, tmp_path, os.environ).err
    assert "dying" not in sys.modules
