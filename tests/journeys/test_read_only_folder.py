"""Commands on a journal in a folder that can only be read."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from migrator.runtime.values import replace
from tests import pins
from tests.journeys.command import Project
from tests.journeys.cutover import cutover_shop
from tests.support_services import in_ci
from tests.support_worlds import prepared


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """As root, permissions bind no one: then the folder is mounted for reading."""
    if os.geteuid():
        folder.chmod(0o500)
        try:
            yield
        finally:
            folder.chmod(0o700)
        return
    for words in (["--bind", str(folder), str(folder)], ["-o", "remount,ro,bind", str(folder)]):
        if subprocess.run(["mount", *words], capture_output=True).returncode:
            what = "this machine lets root mount nothing"
            pytest.fail(what) if in_ci() else pytest.skip(what)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Iterator[Project]:
    made = replace(cutover_shop(tmp_path, dynamodb_url), own_process=True)
    prepared(made, "table create", "capture install", "backfill")
    with read_only(Path(made.environment["MIGRATOR_HOME"])):
        yield made


@pytest.mark.parametrize("words", [["relay", "--once"], ["backfill"]], ids=["relay", "backfill"])
def test_writing_command_names_the_folder_and_the_fix(shop: Project, words: list[str]) -> None:
    ended = shop.run(*words, str(shop.job))
    assert (ended.code, "internal error" in ended.err) == (2, False)
    assert pins.said(ended.err, "folder")


def test_doctor_reports_the_journal(shop: Project) -> None:
    ended = shop.run("doctor", str(shop.job))
    assert ended.code == 1
    assert "internal error" not in ended.out
    assert pins.said(ended.out, "journal")


def test_status_reads_the_journal(shop: Project) -> None:
    said = shop.done("status", str(shop.job), "--all").out
    assert "backfill" in said
    assert pins.said(said, "read")


@pytest.mark.parametrize("words", [["relay", "--once"], ["doctor"]], ids=["relay", "doctor"])
def test_an_embedded_table_in_a_folder_without_writes_is_refused(tmp_path: Path, words: list[str]) -> None:
    made = replace(cutover_shop(tmp_path, "embedded"), own_process=True)
    home = Path(made.environment["MIGRATOR_HOME"])
    home.mkdir()
    with read_only(home):
        ended = made.run(*words, str(made.job))
    assert ended.code in (1, 2)
    assert "internal error" not in ended.out + ended.err
    assert pins.said(ended.out + ended.err, "folder")
