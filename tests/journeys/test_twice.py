"""Every command that writes can be tried dry, and run twice is as run once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from migrator.main import cli
from tests import pins
from tests.journeys.command import Project
from tests.journeys.small import small_shop

WRITERS = {
    "table create", "backfill", "clean", "relay", "capture install", "capture uninstall", "recover",
    "table import", "table change", "migrate-mapping", "cutover advance", "cutover ramp", "verify", "reverse start", "reverse verify",
}  # fmt: skip
"""Commands that change the table or what is in it, the source, or the side that answers."""
OTHERS = {
    "capture status", "doctor", "examples",
    "export", "table export", "init", "look", "ui", "local", "mapping check",
    "mapping try", "mapping diff", "plan", "shadow replay", "status", "table check", "report", "decommission check",
    "cutover status", "cutover rollback", "cutover watch", "pace",
    "reverse check", "reverse status", "reverse stop",
}  # fmt: skip
"""Commands that change at most the journal (SQL answers again, without asking, where something is wrong), write files, or end the
embedded server, which keeps its tables."""


def commands(group: click.Group, before: str = "") -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = commands(command, f"{before}{name} ") if isinstance(command, click.Group) else None
        found |= inner if inner is not None else {before + name: command}
    return found


def test_every_command_that_writes_takes_dry_run() -> None:
    found = commands(cli)
    assert set(found) == WRITERS | OTHERS, "say of a new command whether it writes"
    dry = {name for name, command in found.items() if any("--dry-run" in one.opts for one in command.params)}
    # A replay writes to the journal alone, an export files alone.
    assert dry - {"shadow replay", "export"} == WRITERS


def items(made: Project) -> list[Any]:
    return sorted(made.items(), key=lambda item: (str(item["PK"]), str(item["SK"])))


def test_dry_runs_change_nothing_and_twice_is_once(tmp_path: Path, dynamodb_url: str) -> None:
    made = small_shop(tmp_path, dynamodb_url, create=False)
    job = str(made.job)
    made.done("table", "create", job, "--dry-run")
    assert pins.said(made.run("table", "check", job).err, "table")
    made.done("table", "create", job)
    assert pins.said(made.done("table", "create", job).out, "already")
    made.done("table", "create", job, "--dry-run")

    made.done("backfill", job, "--dry-run")
    assert items(made) == []
    assert pins.said(made.done("status", job).out, "yet")
    told = made.done("backfill", job, "--verbose", "--log-format", "json").err
    logged = [
        one for line in told.splitlines() if line.startswith("{") and "entity" in (one := json.loads(line))
    ]
    assert {(line["run"], line["entity"]) for line in logged} == {(1, "customer"), (1, "invoice")}
    once = items(made)
    assert len(once) == 150
    assert pins.said(made.done("backfill", job).err, "left")
    made.done("backfill", job, "--restart")
    assert items(made) == once

    made.done("verify", job)
    made.done("verify", job)
    assert items(made) == once

    assert made.done("clean", "--all-items", job, "--dry-run", "--json").data["items"] == 150
    assert items(made) == once
    made.done("clean", "--all-items", job, "--yes")
    assert made.done("clean", "--all-items", job, "--yes", "--json").data["deleted"] == 0
    assert items(made) == []
