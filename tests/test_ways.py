"""The ways of one page, one mark, one read and one move through our code: how many functions and files they visit.

A change of one of these ways begins with reading what it visits. The numbers only fall: a way that needs more says why here.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import migrator
from migrator.api import Migration
from migrator.cli.main import run
from migrator.mapping.patterns.requests import Requests
from migrator.stages.backfill.page_work import PageWork
from migrator.stages.live.relay import Relay
from tests.journey.command import Project
from tests.journey.cutover import OTHER, PATTERN, change, cutover_shop
from tests.support_shared import own_clients

OURS = str(Path(migrator.__file__).parent)


@dataclass
class Way:
    """What was visited of our code inside of each call of one function, whichever thread it ran in."""

    root: CodeType
    visits: list[set[CodeType]] = field(default_factory=list)
    _inside: threading.local = field(default_factory=threading.local)

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        visited: set[CodeType] | None = getattr(self._inside, "visited", None)
        if event == "call":
            if visited is None and frame.f_code is self.root:
                visited = self._inside.visited = set()
                self.visits.append(visited)
            if visited is not None and _is_function_of_ours(frame.f_code):
                visited.add(frame.f_code)
        elif event == "return" and frame.f_code is self.root:
            self._inside.visited = None

    def longest(self) -> set[CodeType]:
        return max(self.visits, key=len)


def _is_function_of_ours(code: CodeType) -> bool:
    """Not a comprehension, which stands in one; not the body of a class or a module, which is run by an import."""
    named = code.co_name == "<lambda>" or not code.co_name.startswith("<")
    return named and bool(code.co_flags & CO_OPTIMIZED) and code.co_filename.startswith(OURS)


@contextmanager
def watched(root: Any) -> Iterator[Way]:
    way = Way(root.__code__)
    threading.setprofile(way)
    sys.setprofile(way)
    try:
        yield way
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


@pytest.fixture(autouse=True)
def clients_as_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    own_clients(monkeypatch)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, dynamodb_url: str) -> Project:
    made = cutover_shop(tmp_path_factory.mktemp("ways"), dynamodb_url)
    job = str(made.job)
    made.done("table", "create", job)
    made.done("capture", "install", job)
    return made


@pytest.fixture(scope="module")
def filled(shop: Project) -> Project:
    shop.done("backfill", str(shop.job))
    return shop


def held(what: str, visited: set[CodeType], *, functions: int, files: int) -> None:
    """Prints the way and its files. Both numbers are upper bounds."""
    by_file: dict[str, list[str]] = {}
    for code in visited:
        by_file.setdefault(str(Path(code.co_filename).relative_to(OURS)), []).append(code.co_qualname)
    print(f"\n{what}: {len(visited)} functions in {len(by_file)} files (at most {functions} in {files})")
    for name, visits in sorted(by_file.items()):
        print(f"  {name}: {', '.join(sorted(visits))}")
    assert len(visited) <= functions
    assert len(by_file) <= files


def test_one_page_of_rows(shop: Project) -> None:
    with watched(PageWork.__call__) as way:
        shop.done("backfill", str(shop.job), "--restart")
    # Nine more than without them: the pace of an operator, signs of life, units and the journal's times for metrics.
    held("a page", way.longest(), functions=98, files=25)


def test_one_mark(filled: Project) -> None:
    change(filled, "UPDATE invoice SET total = 6 WHERE id = 7")
    with watched(Relay.once) as way:
        filled.done("relay", str(filled.job), "--once")
    # Eight more: units, the journal's times, the limit that an operator may set.
    held("a mark", way.longest(), functions=236, files=31)


def test_one_read_that_sql_answers(filled: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in filled.environment.items():
        monkeypatch.setenv(name, value)
    with Migration.load(filled.job) as migration:
        migration.begin_reading()
        assert len(migration.read(OTHER, customer_id=1)) == 2
        with watched(Migration.read) as way:
            migration.read(OTHER, customer_id=2)
    # One more than without it: the answer says which side it is of.
    held("a read", way.longest(), functions=60, files=17)
    made_anew = {code.co_qualname for code in way.longest() if code.co_name.startswith("compile_")}
    assert not made_anew, "templates are compiled once a pattern"
    assert Requests.of.__code__ not in way.longest(), "SQL alone answers, and nothing asks the table"


def test_one_move(filled: Project) -> None:
    filled.done("cutover", "status", str(filled.job))  # imports what a move needs
    with watched(run) as way:
        filled.done("cutover", "advance", str(filled.job), PATTERN, "--override", "a test's own way")
    # Thirteen more: as a mark, and what is made of it when it begins; whom a ramp is for; one look at the journal's tables.
    # One more, and a file: whose items a pattern reads, for its way back.
    # Thirty-three more: what the pattern's answer is made of, since evidence is of that answer and not of a whole mapping.
    # Two more: triggers that refuse SQL writers are told from those that mark.
    # Three more: a request is read and checked by itself, since old tables are asked by such ones, too.
    held("a move", way.longest(), functions=666, files=66)
