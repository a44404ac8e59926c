"""A storm whose writers are services: processes that use the adapter in every mode, are killed too, and leave all marks."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.forking import Python
from tests.journeys.command import Project
from tests.storms.shop import marks_left, marks_numbered, open_shop
from tests.storms.storm import Killed, Storm, Weather, rest
from tests.support_adapter import DRIVERS, service_url

KINDS = ("strict 1", "outbox 1", "async-strict 2", "flush 2", "async-outbox 2")
"""Two versions of one service run beside each other while it is deployed."""


@dataclass
class Services:
    """Processes of all kinds, each killed and started again until the context ends. `counts`: what came of their work."""

    made: Project
    url: str
    storm: Storm
    seed: int
    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    wrong: list[str] = field(default_factory=list)

    def __enter__(self) -> Services:
        self._process = self._start()
        # As much as a person would print, so that no pipe is full before it is read.
        self._reading = threading.Thread(target=self._read)
        self._reading.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._reading.join()

    def _start(self) -> subprocess.Popen[str]:
        engine = "postgresql" if self.url.startswith("postgresql") else "mariadb"
        url = service_url(engine, self.url, DRIVERS).render_as_string(hide_password=False)
        storm = self.storm
        values = (url, storm.customers, storm.per_s, self.seed, *storm.lives_s, *KINDS[: storm.writers])
        return Python(
            ["-m", "tests.storms.lives", self.made.job, *values],
            cwd=self.made.folder,
            env=self.made.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def _read(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        for line in self._process.stdout:
            who, end, change = line.rstrip("\n").split("|")
            self.counts[f"service {who}"][end] += 1
            if end == "committed":
                self.counts["changes"][change] += 1
        err = self._process.stderr.read()
        if "Traceback" in err or self._process.wait():
            self.wrong.append(f"services: {self._process.returncode}: {err[-3000:]}")

    @property
    def have_committed(self) -> bool:
        """Whether each kind has committed something."""
        return all(self.counts[f"service {kind}"]["committed"] for kind in KINDS[: self.storm.writers])


def rage_among_services(made: Project, url: str, storm: Storm, seed: int) -> Weather:
    """Lets it blow, then lets everything come to rest; each step that must succeed does."""
    open_shop(url, storm.customers)
    made.done("capture", "install", str(made.job), "--by", "services")
    # Everything is there before the first change, and no backfill comes after the last one: it is the marks that tell.
    made.done("backfill", str(made.job))
    weather, stop = Weather(), threading.Event()
    killed, services = _commands(made, storm, seed, stop), Services(made, url, storm, seed)
    _let_live(list(killed.values()), services, storm, stop)
    weather.counts = {**{name: one.counts for name, one in killed.items()}, **services.counts}
    wrong = [*services.wrong, *(what for one in killed.values() for what in one.wrong)]
    assert not wrong, wrong[0]
    weather.marks, weather.left = marks_numbered(url), marks_left(url)
    rest(made, url, weather)
    return weather


def _commands(made: Project, storm: Storm, seed: int, stop: threading.Event) -> dict[str, Killed]:
    job = str(made.job)
    commands = {
        "backfill": ("backfill", job, "--restart"),
        "relay 1": ("relay", job),
        "relay 2": ("relay", job),
    }
    return {
        name: Killed(made, words, storm.lives_s, random.Random(f"{seed} {name}"), stop)
        for name, words in sorted(commands.items(), reverse=storm.relays_first)
    }


def _let_live(killed: Sequence[Killed], services: Services, storm: Storm, stop: threading.Event) -> None:
    """All of them at once, for the time of the storm; the first command works alone for a moment."""
    threads = [threading.Thread(target=one.run) for one in killed]
    ends_at = time.monotonic() + storm.seconds
    threads[0].start()
    time.sleep(min(3.0, storm.seconds / 8))
    with services:
        for thread in threads[1:]:
            thread.start()
        time.sleep(max(0.0, ends_at - time.monotonic()))
        # On a busy host a life may be over before its first commit.
        while not services.have_committed and time.monotonic() < ends_at + 5 * storm.seconds:
            time.sleep(1)
        stop.set()
    for thread in threads:
        thread.join()
