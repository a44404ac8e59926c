"""A storm: writers, a backfill and two relays that are killed again and again, faults at every request; then rest."""

from __future__ import annotations

import random
import secrets
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from migrator.mapping.model.live import MarkedBy
from migrator.mapping.model.table import CONTROL, TOMBSTONE, Item
from tests.faults.proxy import FaultProxy
from tests.faults.schedule import Faults
from tests.journeys.command import STOPPED, Project, project
from tests.races.shop import log_needs
from tests.storms.shop import MAPPING, TABLES, items_by_hand, marks_left, marks_made, open_shop
from tests.storms.writers import HELD_UP, Known, Writers

TUNING = (
    "workers: 2, page_rows: 50, attempts: 60, backoff_cap_s: 0.2, request_life_s: 1, silent_s: 3, lease_s: 5"
)


@dataclass(frozen=True)
class Storm:
    """How hard it blows. `relays_first`: the backfill finds relays, and never writes alone."""

    seconds: float
    writers: int
    per_s: float
    customers: int
    relays_first: bool = False
    marked_by: MarkedBy = "triggers"
    lives_s: tuple[float, float] = (4.0, 10.0)
    """How long a process lives before it is killed."""


def faults_of(seed: int) -> Faults:
    return Faults(
        unprocessed=0.05, throttle=0.02, slow_down=0.01, errors=0.02, unavailable=0.01, cut_before=0.01,
        cut_after=0.02, late=0.02, late_s=0.3, cancel=0.02, empty=0.01, seed=seed,
    )  # fmt: skip


@dataclass
class Killed:
    """A command that is started, killed after a while, and started again until `stop`."""

    made: Project
    words: tuple[str, ...]
    lives_s: tuple[float, float]
    chance: random.Random
    stop: threading.Event
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    """What a run said that ended with a code that is none of a storm's."""

    def run(self) -> None:
        while not self.stop.is_set():
            process = self.made.start(*self.words)
            try:
                _, err = process.communicate(timeout=self.chance.uniform(*self.lives_s))
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                self.counts["kills"] += 1
            else:
                self.counts[f"ended {process.returncode}"] += 1
                if process.returncode not in (0, STOPPED) or "Traceback" in err:
                    self.wrong.append(f"{' '.join(self.words)}: {process.returncode}: {err[-1500:]}")


@dataclass
class Weather:
    """What happened."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    marks: int = 0
    left: int = 0
    rest_s: float = 0.0
    items: int = 0
    tombstones: int = 0
    compared: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        lines = [
            f"{what}: " + ", ".join(f"{name} {n:,}" for name, n in sorted(counts.items()) if n)
            for what, counts in self.counts.items()
        ]
        last = f"marks: {self.marks:,} made, {self.left:,} left when the writers stopped, worked {self.rest_s:.0f} s later"
        rows = ", ".join(f"{n} {what}" for what, n in self.compared.items())
        last = f"{last}; {self.items:,} items, {self.tombstones:,} tombstones; compared with SQL: {rows}"
        return "\n".join(["", *lines, last])


@contextmanager
def shop_project(folder: Path, url: str, endpoint: str, faults: Faults) -> Iterator[Project]:
    """The shop's job behind the fault proxy, each command a process of its own; its table is there."""
    (folder / "storm.yaml").write_text(MAPPING)
    with FaultProxy(endpoint, faults) as proxy:
        made = project(
            folder,
            url,
            endpoint,
            f"Storm{secrets.token_hex(4)}",
            through=proxy.url,
            tuning=TUNING,
            own_process=True,
        )
        lines = made.job.read_text().splitlines()
        made.job.write_text("\n".join("mapping: storm.yaml" if "mapping:" in one else one for one in lines))
        made.done("table", "create", str(made.job))
        yield made


def rage(made: Project, url: str, storm: Storm, seed: int) -> Weather:
    """Lets it blow, then lets everything come to rest; each step that must succeed does."""
    is_log = storm.marked_by == "log"
    open_shop(url, storm.customers, log_needs(url.partition(":")[0], TABLES) if is_log else ())
    made.done("capture", "install", str(made.job), "--by", storm.marked_by)
    weather = Weather()
    _blow(made, url, storm, seed, weather)
    weather.marks, weather.left = marks_made(url), marks_left(url)
    made.done_at_last("backfill", str(made.job))
    rest(made, url, weather)
    return weather


def _blow(made: Project, url: str, storm: Storm, seed: int, weather: Weather) -> None:
    known = Known(list(range(1, storm.customers + 1)), list(range(1, 2 * storm.customers + 1)))
    job, stop = str(made.job), threading.Event()
    commands = {
        "backfill": ("backfill", job, "--restart"),
        "relay 1": ("relay", job),
        "relay 2": ("relay", job),
    }
    order = sorted(commands, reverse=storm.relays_first)
    killed = {
        name: Killed(made, commands[name], storm.lives_s, random.Random(f"{seed} {name}"), stop)
        for name in order
    }
    threads = [threading.Thread(target=one.run) for one in killed.values()]
    with ExitStack() as stack:
        writers = stack.enter_context(Writers(url, storm.writers, storm.per_s, known, seed))
        stack.callback(stop.set)
        ends_at = time.monotonic() + storm.seconds
        for thread in threads:
            thread.start()
            # The first one has time to begin its work before the next one comes.
            time.sleep(min(5.0, storm.seconds / 5))
        time.sleep(max(0.0, ends_at - time.monotonic()))
    weather.counts["changes"] = writers.counts
    for name, one in killed.items():
        weather.counts[name] = one.counts
    for thread in threads:
        thread.join()
    wrong = [what for one in killed.values() for what in one.wrong]
    assert not wrong, wrong[0]
    assert not writers.counts[HELD_UP], "our triggers broke transactions of the service"


def rest(made: Project, url: str, weather: Weather) -> None:
    """All marks are worked, and every item is what the rows say."""
    began, job = time.monotonic(), str(made.job)
    # Where the log is read, its end may be among no marks yet.
    made.done_at_last("relay", job, "--once")
    left, moved_at = marks_left(url), began
    while left:
        made.done_at_last("relay", job, "--once")
        before, left = left, marks_left(url)
        moved_at = time.monotonic() if left < before else moved_at
        # How long all of it takes is the machine's affair; that it goes on is ours.
        assert time.monotonic() - moved_at < 300, f"{left} marks left, and none was worked for long"
    weather.rest_s = time.monotonic() - began
    verified = made.run("verify", job)
    assert verified.code == 0, verified.out + verified.err[-3000:]
    items = made.items()
    live = [one for one in items if one["type"] not in (TOMBSTONE, CONTROL)]
    weather.items = len(live)
    weather.tombstones = sum(one["type"] == TOMBSTONE for one in items)
    weather.compared = compared(live, items_by_hand(url))
    assert not any(weather.compared.values()), weather.compared


def compared(live: Sequence[Item], by_hand: Mapping[tuple[str, str], Mapping[str, object]]) -> Counter[str]:
    """How many items are missing, extra and wrong, by the database's own answers."""
    items = {
        (str(one["PK"]), str(one["SK"])): {
            name: value for name, value in one.items() if not name.startswith("_")
        }
        for one in live
    }
    assert len(items) == len(live)
    counts = Counter(missing=len(by_hand.keys() - items.keys()), extra=len(items.keys() - by_hand.keys()))
    counts["wrong"] = sum(items[key] != by_hand[key] for key in items.keys() & by_hand.keys())
    return counts
