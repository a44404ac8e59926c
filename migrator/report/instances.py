"""The instances of a job's services, for people and programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from migrator.moments import age_text
from migrator.ports.instances import Instance, Roster

_SILENT_SHOWN = 3
_NOT_TOLD = ("sees", "born")


def who(one: Instance) -> str:
    """An instance in words: its service, where it runs."""
    return f"{' '.join(filter(None, (one.service, one.version)))} on {one.host}:{one.pid}"


def marking_line(roster: Roster) -> str:
    """Who leaves the marks where no trigger does, for people."""
    count = len(roster.marking)
    if not count:
        return "marked by services; no instance is alive, so changes leave no mark"
    return f"marked by services; {count} instance{'s' if count > 1 else ''} alive mark{'' if count > 1 else 's'} changes"


def instances_data(roster: Roster, revision: str | None) -> list[dict[str, Any]]:
    """`revision`: of the job's mapping; None where it cannot be read."""
    return [
        {name: value for name, value in asdict(one).items() if name not in _NOT_TOLD}
        | {
            "age_s": round(roster.age_s(one), 1),
            "alive": roster.age_s(one) < roster.gone_s,
            "fits": None if revision is None else one.revision == revision,
        }
        for one in roster.known
    ]


def instances_table(roster: Roster, revision: str | None) -> Table:
    """Those that live, a line each; made for 80 columns."""
    table = Table(box=None, pad_edge=False)
    for column in ("service", "where"):
        table.add_column(column, overflow="fold")
    for column in ("role", "mode", "mapping", "heard of"):
        table.add_column(column, no_wrap=True)
    for one in roster.living:
        name = " ".join(filter(None, (one.service, one.version)))
        cells = (f"{one.host}:{one.pid}", one.role, one.mode or "-", _fits(one, revision))
        table.add_row(*map(Text, (name, *cells, f"{age_text(roster.age_s(one))} ago")))
    return table


def instances_lines(roster: Roster, revision: str | None, own_version: str) -> Iterator[str]:
    """What is to be said beside the table: mappings and versions that differ, and who said no goodbye."""
    if others := [one for one in roster.living if revision is not None and one.revision != revision]:
        yield f"mapping differs ({len(others)}): start what has an old mapping again, or mend the job's"
    versions = sorted({one.migrator for one in roster.living} - {own_version})
    if versions:
        yield f"some run migrator {', '.join(versions)}; this is {own_version}"
    silent = roster.silent
    for one in silent[:_SILENT_SHOWN]:
        yield f"no goodbye, silent for {age_text(roster.age_s(one))}: {who(one)}"
    if len(silent) > _SILENT_SHOWN:
        yield f"no goodbye of {len(silent) - _SILENT_SHOWN} more before that (see --json)"


def _fits(one: Instance, revision: str | None) -> str:
    if revision is None:
        return "?"
    return "fits" if one.revision == revision else "differs"
