"""The end of a job: its steps in order, with the SQL of each, and what strip came to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class EndStep:
    """`what` in words, `command` of ours or `sql` for the source; nothing of it is run by us."""

    what: str
    command: str = ""
    sql: tuple[str, ...] = ()


@dataclass(frozen=True)
class EndSql:
    """Statements for the source: take the right to write away, take our triggers and tables away, drop the old tables."""

    read_only: Sequence[str]
    uninstall: Sequence[str]
    drop: Sequence[str]


def end_steps(job: str, open_patterns: Sequence[str], sql: EndSql) -> list[EndStep]:
    """All steps, in their order; those that are done already are no harm."""
    moves = [
        EndStep(f"complete {name}", f"migrator cutover advance {job} {name} --yes") for name in open_patterns
    ]
    left = [
        EndStep("work the marks that are left", f"migrator relay {job} --once"),
        EndStep("compare everything for the last time", f"migrator verify {job}"),
        *moves,
    ]
    return [
        EndStep("pause writes: services without dual_write, the source read-only", sql=tuple(sql.read_only)),
        *(left if moves else ()),
        EndStep(
            "let services write again; they ask the table themselves, without `Migration`, which needs the source"
        ),
        EndStep(
            "take our triggers and tables out of the source",
            f"migrator capture uninstall {job}",
            tuple(sql.uninstall),
        ),
        EndStep("take our attributes out of the items", f"migrator decommission strip {job}"),
        EndStep("keep a backup of the source; its old tables go last", sql=tuple(sql.drop)),
    ]


def step_lines(steps: Sequence[EndStep]) -> Iterator[str]:
    for number, step in enumerate(steps, 1):
        yield f"{number}. {step.what}{f': {step.command}' if step.command else ''}"
        for statement in step.sql:
            shown = statement.strip().rstrip(";")
            yield from (
                f"     {line}" for line in f"{shown}{'' if shown.startswith('--') else ';'}".splitlines()
            )
