"""What commands that move access patterns share: who moves, over which evidence, past which instances."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from migrator.cli.options import need_yes
from migrator.cutover_results import Judgement
from migrator.cutover_wiring import Desk
from migrator.errors import SettingsError
from migrator.mapping.document import did_you_mean
from migrator.moments import age_text
from migrator.ports.instances import Instance, Roster
from migrator.ports.phases import MovedError, PatternPhase
from migrator.report.instances import who

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
class Vouched:
    """Silent instances that an operator says are gone. `reasons`: what the audit is to say of them."""

    ids: tuple[str, ...]
    reasons: tuple[str, ...]


def vouched_for(desk: Desk, asked: Asked) -> Vouched:
    """Those that are named, and those that have been silent for long enough. Raises: SettingsError where one is named that
    is not silent."""
    roster = desk.roster()
    named = _named_ones(roster, asked.gone)
    reasons = [f"said to be gone: {who(one)}" for one in named]
    if asked.evict_older_s is None:
        return Vouched(asked.gone, tuple(reasons))
    old = [one for one in roster.silent if roster.age_s(one) > asked.evict_older_s and one not in named]
    if old:
        shown = ", ".join(who(one) for one in old[:_SHOWN])
        more = f" and {len(old) - _SHOWN} more" if len(old) > _SHOWN else ""
        reasons.append(f"said to be gone, silent for over {age_text(asked.evict_older_s)}: {shown}{more}")
    return Vouched((*asked.gone, *(one.id for one in old)), tuple(reasons))


def _named_ones(roster: Roster, ids: Sequence[str]) -> list[Instance]:
    known = {one.id: one for one in roster.known}
    for id_ in ids:
        if id_ not in known:
            silent = ", ".join(one.id for one in roster.silent) or "none"
            raise SettingsError(f"--evict {id_}: there is no such instance; silent ones: {silent}")
        if known[id_] in roster.living:
            age = age_text(roster.age_s(known[id_]))
            raise SettingsError(
                f"--evict {id_}: {who(known[id_])} is alive, heard of {age} ago; stop it first"
            )
    return [known[id_] for id_ in ids]


def strike(desk: Desk, ids: Sequence[str]) -> None:
    """Takes instances off the list, once the audit says who vouched for it; those that were heard of meanwhile stay.

    One that lives all the same comes back with its next heartbeat.
    """
    for one in desk.roster().silent:
        if one.id in ids:
            desk.instances.leave(one)
