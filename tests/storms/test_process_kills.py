"""Processes of one run killed at each step of a page, and fifty times at random."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import psutil
import pytest

from tests.faults.proxy import FaultProxy
from tests.faults.schedule import Faults
from tests.journeys.command import Project, tuned
from tests.journeys.test_processes import children, need_compared, need_pages, need_whole
from tests.journeys.test_processes import shop as shop
from tests.journeys.test_processes_killed import (
    STEPS,
    STEPS_OF_VERIFY,
    need_backfill_survives,
    need_verify_survives,
)

KILLS = 25
"""Of a backfill, and as many of a verify: fifty."""
STARTS = 4 * KILLS
SEED = int(os.environ.get("MIGRATOR_TEST_SEED", random.randrange(10**6)))


@pytest.mark.parametrize("step", STEPS)
def test_a_backfill_survives_a_kill_at_each_step(shop: Project, step: str) -> None:
    need_backfill_survives(shop, step)


@pytest.mark.parametrize("step", STEPS_OF_VERIFY)
def test_a_verify_survives_a_kill_at_each_step(shop: Project, step: str) -> None:
    shop.done("backfill", str(shop.job))
    need_verify_survives(shop, step)


@pytest.fixture
def late(shop: Project, dynamodb_url: str) -> Iterator[Project]:
    """Each request takes a while, so that runs last; a page has four rows, so that there are many."""
    print(f"\nMIGRATOR_TEST_SEED={SEED}")
    with FaultProxy(dynamodb_url, Faults(late=1.0, late_s=0.1, seed=SEED)) as proxy:
        shop.job.write_text(shop.job.read_text().replace(dynamodb_url, proxy.url))
        yield shop


def kill_at_random(
    made: Project,
    ended: Callable[[Project], None],
    *words: str,
    of: Callable[[int], Iterable[psutil.Process]] = children,
) -> None:
    """Kills KILLS processes, the one that is started and those that it has (`of`), one after another. The command is given
    again where it is killed; a run that has ended by itself is looked at (`ended`) and followed by another one, until so many were
    killed."""
    chance, kills, is_new = random.Random(SEED), 0, True
    for _ in range(STARTS):
        driver = made.start(*words, *(["--restart"] if is_new else []))
        while driver.poll() is None and kills < KILLS:
            time.sleep(chance.uniform(0.2, 2.0))
            with suppress(psutil.NoSuchProcess):
                process = chance.choice([psutil.Process(driver.pid), *of(driver.pid)])
                if process.status() != psutil.STATUS_ZOMBIE:
                    process.kill()
                    kills += 1
        _, err = driver.communicate(timeout=300)
        assert driver.returncode in (0, -9, 2, 3), err[-2000:]
        is_new = driver.returncode == 0
        if is_new:
            ended(made)
        if is_new and kills == KILLS:
            break
    print(f"{kills} processes of a {words[0]} were killed")
    assert (kills, is_new) == (KILLS, True)


def test_processes_killed_at_random_lose_nothing(late: Project) -> None:
    job = str(late.job)
    tuned(late, processes=3)
    kill_at_random(late, need_pages, "backfill", job)
    need_whole(late)
    kill_at_random(late, need_compared, "verify", job)
    assert late.run("verify", job, "--json").code == 0
    need_compared(late)
