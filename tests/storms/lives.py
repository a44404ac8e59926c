"""The lives of services: each kind's process is killed with -9 after a while, and the next one begins.

    python -m tests.storms.lives JOB URL CUSTOMERS PER_S SEED SHORTEST_S LONGEST_S KIND…

A kind is one of tests.storms.services.KINDS and a version ("strict 2"). All that is imported is imported here, so that a
life begins at once. Prints who, what came of a transaction, and which change it was, in lines of `who|end|change`.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from dataclasses import dataclass, field
from itertools import count

import migrator.source.adapter.by_hand
import migrator.source.adapter.events
import migrator.source.engines.mysql.connect
import migrator.source.engines.postgresql.connect
import migrator.stages.reads.functions
import migrator.stages.session.service  # noqa: F401  (with those above: what `Migration` imports when it is first asked for)
from migrator.api import Migration
from migrator.runtime.errors import STOPPED, MigratorError
from tests.storms.services import Service, serve
from tests.storms.writers import Known

LIVES = 40
"""How many lives one kind has at most; each of them gives ids of its own, of nine digits."""


@dataclass(frozen=True)
class Shared:
    """What all of them have in common."""

    job: str
    url: str
    customers: int
    per_s: float
    seed: str
    lives_s: tuple[float, float]


@dataclass
class Place:
    """Where one kind lives, once after the other."""

    who: str
    number: int
    shared: Shared
    child: int = 0
    dies_at: float = 0.0
    lives: count[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{self.shared.seed} {self.who}")

    def look(self) -> None:
        """Ends a life whose time has come, and begins one where there is none."""
        if self.child and time.monotonic() >= self.dies_at:
            self.kill()
        if self.child:
            ended, status = os.waitpid(self.child, os.WNOHANG)
            if ended:
                self.child = 0
                self.say(f"ended {os.waitstatus_to_exitcode(status)}", "")
        if not self.child:
            self._begin()

    def kill(self) -> None:
        os.kill(self.child, signal.SIGKILL)
        _, status = os.waitpid(self.child, 0)
        self.child = 0
        self.say("kills" if os.WIFSIGNALED(status) else "ended", "")

    def say(self, end: str, change: str) -> None:
        # One write, so that lines of several processes do not mix.
        os.write(sys.stdout.fileno(), f"{self.who}|{end}|{change}\n".encode())

    def _begin(self) -> None:
        life = next(self.lives)
        self.dies_at = time.monotonic() + self.chance.uniform(*self.shared.lives_s)
        self.child = os.fork()
        if not self.child:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os._exit(self._live(self.number * LIVES + life))

    def _live(self, number: int) -> int:
        """The exit code of a life that ended by itself."""
        shared, (kind, version) = self.shared, self.who.split()
        known = Known(list(range(1, shared.customers + 1)), list(range(1, 2 * shared.customers + 1)))
        service = Service(known, number, shared.per_s, shared.seed, self.say)
        try:
            with Migration.load(shared.job, service="shop", version=version) as migration:
                serve(migration, shared.url, kind, service)
        except MigratorError as error:
            if error.exit_code != STOPPED:
                traceback.print_exc()
            return error.exit_code
        except Exception:
            traceback.print_exc()
            return 1
        return 0


def main(job: str, url: str, *rest: str) -> None:
    customers, per_s, seed, shortest_s, longest_s, *kinds = rest
    shared = Shared(job, url, int(customers), float(per_s), seed, (float(shortest_s), float(longest_s)))
    places = [Place(who, number, shared) for number, who in enumerate(kinds, start=1)]
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    while not stopped:
        for place in places:
            place.look()
        time.sleep(0.05)
    for place in places:
        if place.child:
            place.kill()


if __name__ == "__main__":
    main(*sys.argv[1:])
