"""docs/runbook.md: its commands run in a fresh folder, and what in their output differs from one run to the next."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.journey.command import ROOT
from tests.journey.console import Command, Shell
from tests.journey.in_process import run_here

PAGE = ROOT / "docs" / "runbook.md"
PORT = "8765"
"""The port of the shop's service in the page."""


def played(blocks: Sequence[Sequence[Command]], folder: Path) -> list[list[Command]]:
    """The same commands with what they say now, on a port that is free."""
    for name in ("jobs", "mappings", "docker"):
        shutil.copytree(ROOT / name, folder / name)
    port, environment = _free_port(), _environment()
    with Shell(folder, environment) as shell:
        try:
            return [[_played(shell, one, port) for one in block] for block in blocks]
        finally:
            run_here(["local", "stop"], folder, environment | {"MIGRATOR_HOME": ".migrator/runbook"})


def _played(shell: Shell, command: Command, port: str) -> Command:
    """Log lines are left out: a terminal shows bars in their place."""
    said = shell.run(command.text.replace(PORT, port)).replace(port, PORT)
    lines = [line.rstrip() for line in said.splitlines() if not line.startswith('{"room": ')]
    played = replace(command, said="".join(f"{line}\n" for line in lines))
    if os.environ.get("RUNBOOK_TRACE"):
        print(played, time.strftime("%T"), flush=True)
    return played


def _environment() -> dict[str, str]:
    """What an operator's shell has; nothing that points the command elsewhere."""
    bin_ = Path(sys.executable).parent
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MIGRATOR_"))}
    return kept | {
        "PATH": f"{bin_}:{os.environ['PATH']}",
        "MIGRATOR": str(bin_ / "migrator"),
        "USER": "operator",
        "LOGNAME": "operator",
    }


def _free_port() -> str:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return str(server.getsockname()[1])
