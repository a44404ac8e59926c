"""`migrator cutover rollback`: SQL answers again, by the journal alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from migrator import cutover_wiring
from migrator.cli.belonging import belonging
from migrator.cli.cutover_options import fit_reason, known_pattern, refuse_moved
from migrator.cli.cutover_told import MovedPattern, told
from migrator.cli.instances import known_revision
from migrator.cli.options import read_job
from migrator.cutover_wiring import open_desk
from migrator.errors import CLEAN, SettingsError
from migrator.phase import State
from migrator.ports.phases import PatternPhase
from migrator.stages.cutover import Cutover


@belonging(keeps=True)
def rollback(job: Path, pattern: str | None, every: bool, to: str | None, **asked: Any) -> int:
    """The exit code of `migrator cutover rollback`."""
    if every == (pattern is not None):
        raise click.UsageError("name one pattern, or say --all")
    if every and asked["shown"] is not None:
        raise click.UsageError("--from goes with one pattern")
    fit_reason(asked["reason"])
    read = read_job(job)
    patterns = cutover_wiring.known_patterns(read)
    after = None if to is None else State("shadow") if to == "shadow" else State("off")
    with open_desk(read) as desk:
        phases = desk.phases.all()
        if pattern is not None:
            known_pattern(pattern, [*(patterns if isinstance(patterns, list) else []), *phases])
        stage = Cutover(desk.phases, asked["who_"], known_revision(read) or "")
        if pattern is not None:
            known = stage.phase(pattern)
            refuse_moved(known, asked["shown"])
            moved, code = [_back(stage, known, after, asked["reason"])], CLEAN
        else:
            moved, code = _all_back(stage, phases, after, asked["reason"])
        # All of them are moved before anybody is waited for: a reader that hangs must not hold the others' way out.
        late = told(desk, moved, as_json=asked["as_json"], wait=asked["wait"], as_list=every)
    if not moved and not code and not asked["as_json"]:
        click.echo("nothing to roll back: SQL answers every pattern, or it is complete")
    return max(code, late)


def _all_back(
    stage: Cutover, phases: Mapping[str, PatternPhase], after: State | None, reason: str
) -> tuple[list[MovedPattern], int]:
    """What was moved, and the exit code of what was not: one that somebody else was faster with stops none of the others."""
    moved, code = [], CLEAN
    for _, known in sorted(phases.items()):
        if not (known.fault or known.state.phase in _wanted(after)):
            continue
        try:
            moved.append(_back(stage, known, after or State("shadow"), reason))
        except SettingsError as error:
            click.echo(f"error: {error}", err=True)
            code = max(code, error.exit_code)
    return moved, code


def _wanted(after: State | None) -> set[str]:
    """What a rollback of all means: where the table answers, and where both are compared if all is to be off."""
    return {"ramp", "live"} | ({"shadow"} if after == State("off") else set())


def _back(stage: Cutover, known: PatternPhase, after: State | None, reason: str) -> MovedPattern:
    if known.fault:
        click.echo(f"warning: {known.fault}", err=True)
    moved = stage.roll_back(known, after, reason)
    data = {"pattern": known.pattern, "from": str(known.state), "to": str(moved.state)}
    return MovedPattern(data | {"moved": moved.version != known.version}, moved)
