"""What was moved, told together with the readers that do not act by it yet."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import click
from rich.table import Table

from migrator import cutover_wiring
from migrator.cli.command_line import whole
from migrator.cutover_results import Line
from migrator.cutover_wiring import Desk
from migrator.errors import CLEAN, DIFFERENT
from migrator.ports.phases import PatternPhase
from migrator.report.cutover import judgement_table
from migrator.report.instances import who

_WAIT_LIMIT_S = 60.0
_LOOK_S = 0.2


@dataclass(frozen=True)
class MovedPattern:
    """`data`: what programs are told of the move; its phase now."""

    data: dict[str, Any]
    phase: PatternPhase


def evidence_table(lines: Sequence[Line]) -> Table:
    """The evidence for people, who can copy the commands that mend it."""
    return judgement_table([replace(line, mend=whole(line.mend)) for line in lines])


def told(
    desk: Desk, moved: Sequence[MovedPattern], *, as_json: bool, wait: bool, as_list: bool = False
) -> int:
    """Says what was moved and by when readers see it; waits for them, for all moves at once, where that was asked for.

    `as_list`: programs get a list, whatever their number.
    """
    seen_s = cutover_wiring.seen_within_s(desk.job)
    if not as_json:
        for one in moved:
            click.echo(
                f"{one.phase.pattern}: {one.data['from']} -> {one.phase.state} (version {one.phase.version})"
            )
    late = _late(desk, [one.phase for one in moved]) if wait and moved else {}
    if as_json:
        more = [
            one.data
            | {
                "version": one.phase.version,
                "seen_within_s": seen_s,
                "not_confirmed": late.get(one.phase.pattern, []),
            }
            for one in moved
        ]
        click.echo(json.dumps(more if as_list else more[0], ensure_ascii=False))
    elif late:
        for pattern, names in late.items():
            click.echo(f"{pattern}: not confirmed within {_WAIT_LIMIT_S:g} s: {', '.join(names)}")
    elif moved:
        click.echo("every living reader acts by it" if wait else f"readers act by it within {seen_s:g} s")
    return DIFFERENT if late else CLEAN


def _late(desk: Desk, moved: Sequence[PatternPhase]) -> dict[str, list[str]]:
    """Readers that do not act by the moves after a minute, by pattern."""
    ends_at = time.monotonic() + _WAIT_LIMIT_S
    while True:
        confirmed = desk.phases.confirmed()
        readers = [one for one in desk.roster().living if one.reads]
        late = {
            phase.pattern: names
            for phase in moved
            if (
                names := [
                    who(one)
                    for one in readers
                    if confirmed.get(one.id, {}).get(phase.pattern, 0) < phase.version
                ]
            )
        }
        if not late or time.monotonic() >= ends_at:
            return late
        time.sleep(_LOOK_S)
