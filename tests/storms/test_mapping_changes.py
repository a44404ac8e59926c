"""Nine rounds of mapping changes while a service writes: refused files lie in place while a supervisor restarts the relay."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from migrator.runtime.errors import WRONG_USE
from tests.journeys.changing import MAPPING, SCHEMA, Service, shop_project
from tests.journeys.command import Project
from tests.language.conftest import database_on
from tests.language.engines import ENGINES

LIMIT_S = 120.0
RENAMED = MAPPING.replace("  remark: {", "  memo: {table: remark, ")
"""`migrate-mapping` takes it, and no other command."""
REFUSED = (
    MAPPING.replace("key: [PK, SK]", "key: [PK, SORT]"),
    MAPPING.replace("type: type", "type: kind"),
    MAPPING.replace("I#{code}#{id}", "I#{code}").replace("C#{customer_id}", "C#{total}"),
    RENAMED,
    "mapping: 1\ntable: {",
)
"""Files that no writer may work by."""


def good(number: int) -> str:
    """The mapping of a round: an attribute more, an entity under another name, or other base keys; none comes twice."""
    named = f"{{name: name, round{number}: name}}"
    changes = (
        ("{name: name}", named),
        ("  remark: {", f"  note{number}: {{table: remark, "),
        ("I#{code}#{id}", f"I{number}#{{code}}#{{id}}"),
    )
    return MAPPING.replace(*changes[number % 3])


@dataclass
class Supervisor:
    """Starts the relay again as often as it ends. `codes`: how it ended each time."""

    made: Project
    codes: list[int] = field(default_factory=list)
    _ends: threading.Event = field(default_factory=threading.Event)
    _relay: subprocess.Popen[str] | None = None

    def _supervise(self) -> None:
        while not self._ends.is_set():
            self._relay = self.made.start("relay", str(self.made.job))
            _, error = self._relay.communicate()
            assert "Traceback" not in error, error
            self.codes.append(self._relay.returncode)

    @contextmanager
    def supervising(self) -> Iterator[None]:
        thread = threading.Thread(target=self._supervise)
        thread.start()
        try:
            yield
        finally:
            self._ends.set()
            while thread.is_alive():
                self.crash()
                thread.join(0.1)

    def crash(self) -> None:
        if self._relay is not None:
            self._relay.kill()

    def refused(self) -> None:
        """Returns when the file that lies there has been refused."""
        seen, waiting = len(self.codes), threading.Event()
        self.crash()
        for _ in range(int(LIMIT_S / 0.1)):
            if WRONG_USE in self.codes[seen:]:
                return
            waiting.wait(0.1)
        raise AssertionError(self.codes[seen:])


def write(made: Project, text: str) -> None:
    (made.folder / "mapping.yaml").write_text(text)


def drained(made: Project) -> None:
    """Returns when the supervised relay has worked all that was left."""
    waiting = threading.Event()
    for _ in range(int(LIMIT_S / 0.1)):
        state = made.run("relay", str(made.job), "--dry-run", "--json")
        if state.code == 0 and state.data["waiting"] + state.data["failed"] == 0:
            return
        waiting.wait(0.1)
    raise AssertionError(state)


@pytest.mark.nightly
@pytest.mark.parametrize("engine", ENGINES)
def test_relay_comes_out_of_nine_rounds_of_refused_mappings(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path, dynamodb_url: str
) -> None:
    url = database_on(engine, request, tmp_path)(";".join(SCHEMA))
    made = shop_project(tmp_path, url, dynamodb_url)
    # Each round kills a relay, whose silence is waited for.
    made.job.write_text(made.job.read_text().replace("silent_s: 20", "silent_s: 5"))
    made.prepared("table create", "capture install", "backfill")
    job, here, supervisor, rounds = str(made.job), MAPPING, Supervisor(made), 0
    with supervisor.supervising():
        for number in range(9):
            with Service(engine, url, rounds=rounds) as service:
                service.goes_round()
                refused = REFUSED[number % len(REFUSED)]
                write(made, refused)
                supervisor.refused()
                for words in (["capture", "install"], ["backfill"], ["migrate-mapping"]):
                    if words != ["migrate-mapping"] or refused != RENAMED:
                        assert made.run(*words, job).code == WRONG_USE, (number, words)
                service.goes_round()
                goes_back = number % 3 == 2
                write(made, good(number))
                made.done_at_last("migrate-mapping", job, "--settle", "0", "--yes")
                service.goes_round()
                if goes_back:
                    made.done_at_last("migrate-mapping", job, "--settle", "0", "--yes", "--go-back")
                else:
                    here = good(number)
                service.goes_round()
                assert not service.failed
                rounds = service.rounds + 1
            drained(made)
            write(made, here)
            assert made.run("verify", job, "--settle", "0").code == 0, number
