"""How often one command opens the journal and the table, parses the mapping, describes the table, looks for capture.

Once is enough, unless what was asked may have changed meanwhile and an old answer would do harm: each number above one says
why. The numbers only fall.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import pytest
from botocore.client import BaseClient

from migrator.dynamodb.client import service_client
from migrator.journal.database import Database
from migrator.mapping.language.parse import examine_mapping
from migrator.settings import transforms
from migrator.source.capture import install
from tests.journeys.command import Project
from tests.journeys.cutover import PATTERN, change, cutover_shop, filled

# One worker fills the table once.
pytestmark = pytest.mark.xdist_group("asked once")

_COUNTED = {
    inspect.unwrap(Database.__init__).__code__: "journals",
    examine_mapping.__code__: "parses",
    install._installation.__code__: "installations",
    service_client.__code__: "clients",
}
_REQUEST = inspect.unwrap(BaseClient._make_api_call).__code__
_TRANSACTION = inspect.unwrap(Database._begun).__code__


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """The calls of what is counted, by its name, in any thread."""
    counts: Counter[str] = Counter()

    def see(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and (name := _name(frame.f_code, frame)):
            counts[name] += 1

    threading.setprofile(see)
    sys.setprofile(see)
    try:
        yield counts
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _name(code: CodeType, frame: FrameType) -> str:
    if code is _REQUEST:
        return "tables" if frame.f_locals["operation_name"] == "DescribeTable" else ""
    if code is _TRANSACTION:  # a generator, which is entered again to commit
        return "" if "committing" in frame.f_locals else "transactions"
    return _COUNTED.get(code, "")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, dynamodb_url: str) -> Project:
    return filled(cutover_shop(tmp_path_factory.mktemp("once"), dynamodb_url))


def held(shop: Project, words: str, *, journals: int = 1, parses: int = 1, **more: int) -> None:
    """The command, ended well, has asked no more often than this."""
    command, *rest = words.replace("JOB", str(shop.job)).split()
    transforms._parsed.cache_clear()  # as in a process of its own
    with counted() as counts:
        ended = shop.run(command, *rest)
    assert ended.code in (0, 1), ended.err
    allowed = {"journals": journals, "parses": parses, "tables": 0, "installations": 0, "clients": 2} | more
    print(f"\n{words}: {', '.join(f'{counts[name]} {name} ({most})' for name, most in allowed.items())}")
    assert {name: counts[name] for name, most in allowed.items() if counts[name] > most} == {}


# One client asks the table before and after the command's own work, and waits for nothing; the other one is the command's.


def test_status(shop: Project) -> None:
    # The marks that wait; the capture of each table, which status asks as `capture status` does.
    # As many transactions with more runs: these are read in one.
    held(shop, "status JOB", installations=3, transactions=18)


def test_cutover_status(shop: Project) -> None:
    held(shop, "cutover status JOB", tables=1)


# Where triggers are compared, what is installed is asked once more, in the connection that looks at the triggers.


def test_cutover_advance(shop: Project) -> None:
    # Its evidence is read in one transaction of the journal.
    held(shop, f"cutover advance JOB {PATTERN} --dry-run", tables=1, installations=2, transactions=11)
    held(shop, f"cutover advance JOB {PATTERN}", tables=1, installations=2, transactions=17)


def test_doctor(shop: Project) -> None:
    # Each check asks for itself, so that one that fails takes no other with it.
    held(shop, "doctor JOB", tables=5, installations=4, clients=4)


def test_shadow_replay(shop: Project) -> None:
    held(shop, "shadow replay JOB --sample 2 --settle 0", tables=1)


def test_report(shop: Project) -> None:
    held(shop, "report JOB", tables=1, installations=1)


def test_verify(shop: Project) -> None:
    held(shop, "verify JOB", tables=1, installations=1)
    # Once more at its end, before what went back is taken for whole: hours may have passed.
    held(shop, "verify JOB --repair", tables=1, installations=3)


def test_backfill(shop: Project) -> None:
    # The guard describes the table itself: it refuses one that came in the place of the other.
    held(shop, "backfill JOB --restart", tables=2, installations=2)


def test_relay(shop: Project) -> None:
    change(shop, "UPDATE invoice SET total = 8 WHERE id = 7")
    # The guard again, at the start, with the first report, and at the end; there also what leaves no mark, such as a partition.
    held(shop, "relay JOB --once", tables=4, installations=4)
