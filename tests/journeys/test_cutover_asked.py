"""What an operator vouches for counts with the move that was made, and what was shown before a question is judged again
after it."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import pins
from tests.forking import Python
from tests.journeys.command import Project
from tests.journeys.cutover import (
    PATTERN,
    TUNING,
    change,
    compared,
    cutover_shop,
    dead,
    desk_of,
    filled,
    force,
    live,
    obey,
    phase,
    reader,
)

DEAD_S = 1000.0


@pytest.fixture
def bare(tmp_path: Path, dynamodb_url: str) -> Project:
    """Readers beat once in these tests: none falls silent while a command starts, however long that takes."""
    made = cutover_shop(tmp_path, dynamodb_url)
    made.job.write_text(made.job.read_text().replace(TUNING, "request_life_s: 0.5, silent_s: 600"))
    return made


@pytest.fixture
def proven(bare: Project) -> Iterator[Project]:
    """Every pattern is live, and all speaks for the end of one of them."""
    shop = live(filled(bare))
    with desk_of(shop) as session:
        one = reader(session, shop)
        compared(session, shop, PATTERN)
        obey(session, one)
        yield shop


def known(shop: Project) -> set[str]:
    with desk_of(shop) as session:
        return {one.id for one in session.instances.known()}


@contextmanager
def at_a_terminal(shop: Project, *words: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The command at a terminal, waiting at its question; typed answers go to the file descriptor."""
    keyboard, typed = pty.openpty()
    process = Python(
        ["-m", "migrator", "cutover", *words],
        cwd=shop.folder,
        env=shop.environment,
        stdin=typed,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        said = ""
        while "Go on?" not in said:
            letter = process.stderr.read(1)  # type: ignore[union-attr]
            assert letter, process.communicate()
            said += letter
        yield process, keyboard
    finally:
        process.kill()
        process.wait(120)
        os.close(keyboard)
        os.close(typed)


def test_evicted_instance_stays_listed_if_the_move_is_refused(bare: Project) -> None:
    job = str(bare.job)
    force(bare, "advance", job, PATTERN)
    gone = dead(bare, DEAD_S)
    refused = bare.run("cutover", "advance", job, PATTERN, "--evict", gone.id, "--json")
    assert refused.code == 1
    verdicts = {line["name"]: line["verdict"] for line in refused.data["evidence"]}
    # Judged as if it were gone, and the list says that it was never struck: the audit has no line of that.
    assert (verdicts["silent"], gone.id in known(bare)) == ("ok", True)
    assert f"--evict {gone.id}" in bare.done("cutover", "status", job).out
    bare.done("cutover", "advance", job, PATTERN, "--evict", gone.id, "--override", "drill")
    assert gone.id not in known(bare)


def test_instance_is_not_evicted_without_a_confirmation(proven: Project) -> None:
    gone = dead(proven, DEAD_S)
    asked = proven.run("cutover", "advance", str(proven.job), PATTERN, "--one-way", "--evict", gone.id)
    assert (asked.code, pins.said(asked.err)) == (2, True), asked.err
    assert gone.id in known(proven)


def test_a_no_moves_nothing_and_evicts_no_instance(proven: Project) -> None:
    gone = dead(proven, DEAD_S)
    with at_a_terminal(proven, "advance", str(proven.job), PATTERN, "--one-way", "--evict", gone.id) as (
        process,
        keyboard,
    ):
        os.write(keyboard, b"n\n")
        assert process.wait(120) == 1
    assert (phase(proven), gone.id in known(proven)) == ("live", True)


def test_change_made_during_the_question_is_found_after_the_yes(proven: Project) -> None:
    with at_a_terminal(proven, "advance", str(proven.job), PATTERN, "--one-way") as (process, keyboard):
        change(proven, "UPDATE customer SET name = 'x' WHERE id = 2")
        os.write(keyboard, b"y\n")
        out, err = process.communicate(timeout=120)
    assert process.returncode == 1, out
    assert "refused: customer_by_id stays in live; not proven: marks, verify" in err
    assert "1 wait" in out
    assert phase(proven) == "live"


def test_confirmation_moves_only_if_the_evidence_still_holds(proven: Project) -> None:
    with at_a_terminal(proven, "advance", str(proven.job), PATTERN, "--one-way") as (process, keyboard):
        os.write(keyboard, b"y\n")
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "customer_by_id: live -> complete" in out
