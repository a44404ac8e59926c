"""`migrator throttle`, `pause` and `resume`: how fast a job's backfills and relays may go, while they are at work."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from migrator.cli.command_line import print_json
from migrator.cli.options import belonging, print_folded
from migrator.commands.status_text import pace_line, standings
from migrator.commands.status_work import dead_here
from migrator.journal.operations import SqlProcesses
from migrator.mapping.model.instances import Operations, Throttle
from migrator.runtime.errors import SettingsError
from migrator.stages.session.job import CommandJob

LONGEST = 200
WITHIN_S = 10
"""By when a process that is at work has heard of it: two of its heartbeats."""


@belonging()
def throttle(
    command_job: CommandJob, max_write_units: int | None, off: bool, reason: str, who: str, as_json: bool
) -> int:
    """The exit code of `migrator throttle`."""
    if off and max_write_units is not None:
        raise click.UsageError("--off goes without --max-write-units")
    if max_write_units is None and not off:
        return _told(command_job, as_json=as_json)
    return _asked(command_job, who, reason, as_json=as_json, max_write_units=max_write_units)


@belonging()
def pause(command_job: CommandJob, reason: str, who: str, as_json: bool) -> int:
    """The exit code of `migrator pause`."""
    return _asked(command_job, who, reason, as_json=as_json, paused=True)


@belonging()
def resume(command_job: CommandJob, who: str, as_json: bool) -> int:
    """The exit code of `migrator resume`."""
    return _asked(command_job, who, "", as_json=as_json, paused=False)


def _asked(command_job: CommandJob, who: str, reason: str, *, as_json: bool, **asked: Any) -> int:
    job = command_job.job
    processes = SqlProcesses(command_job.journal().database, job.name)
    if not (who + reason).isprintable() or max(len(who), len(reason)) > LONGEST:
        raise SettingsError(f"--who and --reason are one line of {LONGEST} letters at most")
    throttle = processes.ask(who, reason, **asked)
    return _print(throttle, processes.read(), job.name, as_json=as_json)


def _told(command_job: CommandJob, *, as_json: bool) -> int:
    processes = SqlProcesses(command_job.journal().database, command_job.job.name)
    operations = processes.read()
    return _print(operations.throttle, operations, command_job.job.name, as_json=as_json)


def _print(throttle: Throttle, operations: Operations, job: str, *, as_json: bool) -> int:
    at_work = sum(one.is_at_work for one in standings(operations, dead_here()))
    if as_json:
        about = {"job": job, "throttle": asdict(throttle), "processes": at_work}
        print_json(about)
        return 0
    print_folded(pace_line(throttle, operations.now_s))
    if at_work:
        hears = f"{at_work} process(es) at work hear of it within {WITHIN_S} s"
    else:
        hears = "no backfill or relay is at work; the next one begins with it"
    print_folded(f"{hears}; `migrator status` says how they get on")
    return 0
