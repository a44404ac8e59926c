"""Options of commands that move access patterns, and the output of a move."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import click
from rich.table import Table

from migrator.cli.command_line import whole
from migrator.cli.options import need_yes
from migrator.model.durations import age_text
from migrator.model.errors import CLEAN, DIFFERENT, SettingsError, did_you_mean
from migrator.model.evidence import Judgement, Line, MovedError, PatternPhase
from migrator.model.instances import Instance, ServiceRegistry
from migrator.output.cutover import judgement_table, who
from migrator.wiring import cutover
from migrator.wiring.cutover import JobJournal

# ── Shared by commands that move access patterns: actor and reason, override, and instances to evict ──

_LETTERS = 500
_SHOWN = 50


@dataclass(frozen=True)
class Asked:
    """Options of a move forward. `override`: why it is to be made against the evidence. `shown`: the phase that the
    pattern must still be in."""

    shown: str | None
    who: str
    reason: str
    override: str | None
    gone: tuple[str, ...]
    evict_older_s: float | None
    dry_run: bool
    wait: bool
    yes: bool
    as_json: bool

    def __post_init__(self) -> None:
        if self.override is not None and not self.override.strip():
            raise SettingsError(
                '--override wants a reason for the audit: --override "why it is safe all the same"'
            )
        fit_reason(self.override or "")
        fit_reason(self.reason)
        if self.dry_run and (self.gone or self.evict_older_s is not None):
            option = "--evict strikes an instance" if self.gone else "--evict-older-than strikes instances"
            raise SettingsError(f"{option} off the list, and --dry-run changes nothing; give one of them")

    def goes(self, judged: Judgement) -> bool:
        """Whether a move is to be made, as far as it is for the evidence."""
        return not self.dry_run and (judged.ok or self.override is not None)

    def wants_a_yes(self, judged: Judgement) -> bool:
        return judged.after.phase == "complete" and not self.yes

    def need_yes(self, judged: Judgement) -> None:
        """Returns where the one move that has no way back is meant.

        Raises: RefusedError where it is not; SettingsError where nobody can be asked.
        """
        if not sys.stdin.isatty():
            raise SettingsError("from complete there is no way back, and nobody can be asked here; say --yes")
        what = (
            f"{judged.pattern}: from complete there is no way back, and SQL may no longer be written. Go on?"
        )
        need_yes(what)


def fit_reason(reason: str) -> None:
    """Raises: SettingsError where the audit has no room for it."""
    if len(reason) > _LETTERS:
        raise SettingsError(f"a reason has at most {_LETTERS} letters")


def refuse_moved(known: PatternPhase, shown: str | None) -> None:
    """Raises: MovedError where the pattern is not in the phase any more that somebody was shown."""
    if shown is not None and known.state.phase != shown:
        raise MovedError(
            f"pattern {known.pattern}: it is in {known.state}, not in {shown} any more; look again"
        )


def known_pattern(name: str, known: Sequence[str]) -> None:
    """Raises: SettingsError where there is no such pattern."""
    if name not in known:
        raise SettingsError(f"the mapping has no access pattern '{name}'{did_you_mean(name, known)}")


@dataclass(frozen=True)
class EvictedInstances:
    """Silent instances that an operator says are gone. `reasons`: what the audit is to say of them."""

    ids: tuple[str, ...]
    reasons: tuple[str, ...]


def vouched_for(job_journal: JobJournal, asked: Asked) -> EvictedInstances:
    """Those that are named, and those that have been silent for long enough. Raises: SettingsError where one is named that
    is not silent."""
    service_registry = job_journal.service_registry()
    named = _named_ones(service_registry, asked.gone)
    reasons = [f"said to be gone: {who(one)}" for one in named]
    if asked.evict_older_s is None:
        return EvictedInstances(asked.gone, tuple(reasons))
    old = [
        one
        for one in service_registry.silent
        if service_registry.age_s(one) > asked.evict_older_s and one not in named
    ]
    if old:
        shown = ", ".join(who(one) for one in old[:_SHOWN])
        more = f" and {len(old) - _SHOWN} more" if len(old) > _SHOWN else ""
        reasons.append(f"said to be gone, silent for over {age_text(asked.evict_older_s)}: {shown}{more}")
    return EvictedInstances((*asked.gone, *(one.id for one in old)), tuple(reasons))


def _named_ones(service_registry: ServiceRegistry, ids: Sequence[str]) -> list[Instance]:
    known = {one.id: one for one in service_registry.known}
    for id_ in ids:
        if id_ not in known:
            silent = ", ".join(one.id for one in service_registry.silent) or "none"
            raise SettingsError(f"--evict {id_}: there is no such instance; silent ones: {silent}")
        if known[id_] in service_registry.living:
            age = age_text(service_registry.age_s(known[id_]))
            raise SettingsError(
                f"--evict {id_}: {who(known[id_])} is alive, heard of {age} ago; stop it first"
            )
    return [known[id_] for id_ in ids]


def strike(job_journal: JobJournal, ids: Sequence[str]) -> None:
    """Takes instances off the list, once the audit says who vouched for it; those that were heard of meanwhile stay.

    One that lives all the same comes back with its next heartbeat.
    """
    for one in job_journal.service_registry().silent:
        if one.id in ids:
            job_journal.instances.leave(one)


# ── The output of a move, with the readers that do not act by it yet ──

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
    job_journal: JobJournal,
    moved: Sequence[MovedPattern],
    *,
    as_json: bool,
    wait: bool,
    as_list: bool = False,
) -> int:
    """Says what was moved and by when readers see it; waits for them, for all moves at once, where that was asked for.

    `as_list`: programs get a list, whatever their number.
    """
    seen_s = cutover.seen_within_s(job_journal.job)
    if not as_json:
        for one in moved:
            click.echo(
                f"{one.phase.pattern}: {one.data['from']} -> {one.phase.state} (version {one.phase.version})"
            )
    late = _late(job_journal, [one.phase for one in moved]) if wait and moved else {}
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


def _late(job_journal: JobJournal, moved: Sequence[PatternPhase]) -> dict[str, list[str]]:
    """Readers that do not act by the moves after a minute, by pattern."""
    ends_at = time.monotonic() + _WAIT_LIMIT_S
    while True:
        confirmed = job_journal.phases.confirmed()
        readers = [one for one in job_journal.service_registry().living if one.reads]
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
