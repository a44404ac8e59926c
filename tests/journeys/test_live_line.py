"""One line that lives: what a relay and a watch show to a person at a terminal, and not to a pipe."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import pins
from tests.forking import Python
from tests.journeys.command import Project
from tests.journeys.cutover import PATTERN, change, cutover_shop, filled, force

LIMIT_S = 120


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    return filled(cutover_shop(tmp_path, dynamodb_url))


class Screen:
    """What a process wrote to its terminal by now."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.text = ""

    def until(self, words: str) -> str:
        """All of it, once it has the words (a pattern) since the last call."""
        begun, ends_at = len(self.text), time.monotonic() + LIMIT_S
        while not re.search(words, self.text[begun:]):
            assert time.monotonic() < ends_at, self.text
            if select.select([self.number], [], [], 1)[0]:
                self.text += os.read(self.number, 65536).decode()
        return self.text[begun:]

    def rest(self) -> str:
        begun = len(self.text)
        while select.select([self.number], [], [], 0.5)[0]:
            try:
                self.text += os.read(self.number, 65536).decode()
            except OSError:  # no process writes to it any more
                break
        return self.text[begun:]


@contextmanager
def at_a_terminal(shop: Project, *words: str) -> Iterator[tuple[subprocess.Popen[str], Screen]]:
    """The command on a terminal of its own."""
    ours, theirs = pty.openpty()
    environment = {**shop.environment, "TERM": "xterm", "COLUMNS": "100"}
    process = Python(
        ["-m", "migrator", *words],
        cwd=shop.folder,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        yield process, Screen(ours)
    finally:
        process.kill()
        process.wait(120)
        os.close(ours)


def test_relay_shows_one_line_with_its_progress(shop: Project) -> None:
    with at_a_terminal(shop, "relay", str(shop.job)) as (process, screen):
        screen.until("relay: 0 change")
        change(shop, "UPDATE customer SET name = 'x' WHERE id = 2")
        drawn = screen.until("relay: 1 change")
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 0
        end = screen.rest()
    # Each time it is drawn where it was before: no line is left of it on the screen.
    lines = [line for line in re.split(r"\n", drawn) if "relay: " in line]
    assert len(lines) <= 1 + drawn.count("stopping")
    assert pins.said(end.splitlines()[-1])


def test_a_watch_shows_one_line_and_every_move_above_it(shop: Project) -> None:
    text = shop.job.read_text().replace("cutover: {", "cutover: {watch: {every_s: 0.2}, ")
    shop.job.write_text(text)
    force(shop, "advance", str(shop.job), PATTERN)
    with at_a_terminal(shop, "cutover", "watch", str(shop.job)) as (process, screen):
        screen.until("watch: looked at the patterns")
        screen.until("0 moved back")
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 0
        end = screen.rest()
    assert pins.said(" ".join(end.split()), job=shop.job)


def test_a_pipe_gets_lines_alone(shop: Project) -> None:
    process = shop.start("relay", str(shop.job), "--log-format", "json")
    line = process.stderr.readline()  # type: ignore[union-attr]
    while "relay_lag" not in line:
        assert line
        line = process.stderr.readline()  # type: ignore[union-attr]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT_S)
    assert "\x1b" not in out + err
    assert "\r" not in out + err
