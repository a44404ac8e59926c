"""The command as a person or a script runs it: in a process of its own, or, much faster, inside of the test's."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.store import DynamoStore
from migrator.journal.database import TEST_CLOCK
from migrator.mapping.model.table import Item, KeyAttribute, TableDesign
from tests.forking import Python
from tests.journeys.in_process import LIMIT_S, Ended, run_here
from tests.support_fence import no_fence

__all__ = ["ROOT", "Ended", "Project", "digest", "keys", "project"]

ROOT = Path(__file__).parents[2]
STOPPED = 3
"""The exit code of what stopped in between and goes on with the same command."""
RUNS = 20
"""How often a command is given that stops: a limit that only a failure reaches."""


@dataclass(frozen=True)
class Project:
    """A working folder with a job of its own in it.

    `own_process`: whether `run` starts the command as a person does; `start` always does.
    """

    folder: Path
    job: Path
    table: str
    endpoint: str
    environment: dict[str, str]
    own_process: bool = False

    def start(self, *words: str) -> subprocess.Popen[str]:
        return Python(
            ["-m", "migrator", *words],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    @contextmanager
    def beside(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """The command in the background until the block ends. What it prints is read, so that it never waits for a reader."""
        process = self.start(*words)
        reading = threading.Thread(target=process.communicate)
        reading.start()
        try:
            yield process
        finally:
            process.terminate()
            reading.join(120)
            assert not reading.is_alive(), f"{words[0]} does not end"

    def pass_time(self, seconds: float) -> None:
        """Set the journal's clock forward for the next commands. A running process keeps its clock."""
        self.environment[TEST_CLOCK] = str(float(self.environment.get(TEST_CLOCK, 0)) + seconds)

    def run(self, *words: str) -> Ended:
        ended = (
            self._run_apart(*words) if self.own_process else run_here(words, self.folder, self.environment)
        )
        assert "Traceback" not in ended.out + ended.err, ended.err[-3500:]
        return ended

    def _run_apart(self, *words: str) -> Ended:
        process = self.start(*words)
        out, err = process.communicate(timeout=LIMIT_S)
        return Ended(process.returncode, out, err)

    def done(self, *words: str) -> Ended:
        """A run that must end with 0."""
        ended = self.run(*words)
        assert ended.code == 0, f"{ended.out[-3000:]}{ended.err[-3000:]}"
        return ended

    def prepared(self, *commands: str) -> Project:
        """After these commands, each of which is given the job."""
        for command in commands:
            self.done(*command.split(), str(self.job))
        return self

    def done_at_last(self, *words: str) -> Ended:
        """A run that must end with 0; one that ends with 3 is given again, as its message says.

        A host that stands still for longer than `silent_s` stops any writer, rightly.
        """
        for _ in range(RUNS):
            ended = self.run(*words)
            if ended.code != STOPPED:
                break
        assert ended.code == 0, (ended.out + ended.err)[-3000:]
        return ended

    def store(self) -> DynamoStore:
        design = TableDesign(self.table, (KeyAttribute("PK"), KeyAttribute("SK")), "entity")
        return DynamoStore(
            dynamodb_client(region=None, profile=None, endpoint=self.endpoint), design, no_fence
        )

    def items(self) -> list[Item]:
        return [item for page in self.store().scan(0, 1) for item in page.items]


def project(
    folder: Path,
    source: str,
    endpoint: str,
    table: str,
    *,
    through: str = "",
    tuning: str = "",
    mapping: str = "",
    text: str = "",
    own_process: bool = False,
) -> Project:
    """`through`: the endpoint that the command uses, where it is another one than the test's. `text`: of its mapping, else
    `mapping` is one of ours, and Chinook's for the source's engine unless it is said."""
    path = ROOT / "mappings" / f"{mapping or chinook_mapping(source)}.yaml"
    if text:
        path = folder / "mapping.yaml"
        path.write_text(text)
    job = folder / "shop.yaml"
    job.write_text(
        f"job: 1\nmapping: {path.name if text else path}\nsource: {{url: '${{MIGRATOR_SOURCE_URL}}'}}\n"
        f"target: {{table: {table}, endpoint: '{through or endpoint}'}}\ntuning: {{{tuning}}}\n"
    )
    environment = {**os.environ, "MIGRATOR_SOURCE_URL": source, "PYTHONPATH": str(ROOT)}
    return Project(folder, job, table, endpoint, environment, own_process)


def tuned(made: Project, **settings: object) -> Project:
    """The project, with other settings of its job's `tuning:` from now on; None for those of a job that says nothing."""
    text = made.job.read_text()
    for name, value in settings.items():
        text = re.sub(rf"\b{name}: [^,}}]*(, )?", "", text)
        if value is not None:
            text = text.replace("tuning: {", f"tuning: {{{name}: {value}, ", 1)
    made.job.write_text(text)
    return made


def chinook_mapping(source: str) -> str:
    """The name of the shipped mapping of Chinook whose SQL is in the names of the engine's script."""
    return "chinook_postgresql" if source.startswith("postgres") else "chinook"


def digest(entries: Sequence[Sequence[str]]) -> str:
    """MD5 of entries sorted bytewise, one value a line, as the data's own reference SQL makes it."""
    ordered = sorted([part.encode() for part in entry] for entry in entries)
    return hashlib.md5(b"\n".join(b"\n".join(entry) for entry in ordered), usedforsecurity=False).hexdigest()


def keys(items: Sequence[Item], index: str = "") -> list[list[str]]:
    """(PK, SK) of all items, or the entries of an index with the keys of their items."""
    names = [f"{index}PK", f"{index}SK", "PK", "SK"] if index else ["PK", "SK"]
    return [[str(item[name]) for name in names] for item in items if names[0] in item]
