"""Pages whose commands are run: each in a fresh folder with the files that the page gives, and what differs from run to run."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from migrator.runtime.values import replace
from tests.journeys.command import ROOT
from tests.journeys.console import LOG_LINE, Command, Shell, blocks_of
from tests.journeys.in_process import run_here

PORT = "8765"
"""The port of the shop's service in the runbook."""
_FILE = re.compile(r"^```\w+ (?P<name>[\w.-]+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Page:
    """`brings`: folders of the repository that its reader works in; none where the page begins in an empty folder.

    `home`: where its embedded DynamoDB is, in the reader's folder.
    """

    file: Path
    brings: tuple[str, ...]
    home: str

    @property
    def text(self) -> str:
        return self.file.read_text(encoding="utf-8")

    @property
    def blocks(self) -> list[list[Command]]:
        return list(blocks_of(self.text))

    @property
    def files(self) -> Iterator[tuple[str, str]]:
        """Files that its reader saves, by their names behind the language of a block, with their text."""
        yield from ((found["name"], found["text"]) for found in _FILE.finditer(self.text))


RUNBOOK = Page(ROOT / "docs" / "runbook.md", ("jobs", "mappings", "docker"), ".migrator/runbook")
TUTORIAL = Page(ROOT / "docs" / "tutorial.md", (), ".migrator")
PAGES = (RUNBOOK, TUTORIAL)


def played(page: Page, folder: Path) -> list[list[Command]]:
    """The page's commands with what they say now, on a port that is free."""
    for name in page.brings:
        shutil.copytree(ROOT / name, folder / name)
    for name, text in page.files:
        (folder / name).write_text(text, encoding="utf-8")
    port, environment = _free_port(), _environment()
    with Shell(folder, environment) as shell:
        try:
            return [[_played(shell, one, port) for one in block] for block in page.blocks]
        finally:
            run_here(["local", "stop"], folder, environment | {"MIGRATOR_HOME": page.home})


def _played(shell: Shell, command: Command, port: str) -> Command:
    """Log lines are left out: a terminal shows bars in their place."""
    said = shell.run(command.text.replace(PORT, port)).replace(port, PORT)
    lines = [line.rstrip() for line in said.splitlines() if not LOG_LINE.match(line)]
    played = replace(command, said="".join(f"{line}\n" for line in lines))
    if os.environ.get("RUNBOOK_TRACE"):
        print(played, time.strftime("%T"), flush=True)
    return played


def _environment() -> dict[str, str]:
    """What an operator's shell has; nothing that points the command elsewhere."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MIGRATOR_"))}
    return environment_of(kept)


def environment_of(kept: Mapping[str, str]) -> dict[str, str]:
    """With who is at work, and the command that is tested; in a pipe, as a page shows it."""
    bin_ = Path(sys.executable).parent
    return {
        **{name: value for name, value in kept.items() if name != "COLUMNS"},
        "PATH": f"{bin_}:{os.environ['PATH']}",
        "MIGRATOR": str(bin_ / "migrator"),
        "USER": "operator",
        "LOGNAME": "operator",
    }


def _free_port() -> str:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return str(server.getsockname()[1])
