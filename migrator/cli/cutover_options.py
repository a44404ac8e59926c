"""What commands that move access patterns share: who moves, over which evidence, past which instances."""

from __future__ import annotations

import getpass
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from migrator.cli.options import json_option
from migrator.cutover_results import Judgement
from migrator.cutover_wiring import Desk
from migrator.errors import SettingsError
from migrator.mapping.document import did_you_mean
from migrator.report.instances import age_text, who

_LETTERS = 500


@dataclass(frozen=True)
class Asked:
    """Options of a move forward. `override`: why it is to be made against the evidence."""

    who: str
    reason: str
    override: str | None
    gone: tuple[str, ...]
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
        if self.dry_run and self.gone:
            raise SettingsError(
                "--gone strikes an instance off the list, and --dry-run changes nothing; give one of them"
            )

    def goes(self, judged: Judgement) -> bool:
        """Whether a move is to be made, as far as it is for the evidence."""
        return not self.dry_run and (judged.ok or self.override is not None)

    def wants_a_yes(self, judged: Judgement) -> bool:
        return judged.after.phase == "complete" and not self.yes

    def is_confirmed(self, judged: Judgement) -> bool:
        """Whether the one move that has no way back is meant. Raises: SettingsError where nobody can be asked."""
        if not sys.stdin.isatty():
            raise SettingsError("from complete there is no way back, and nobody can be asked here; say --yes")
        what = (
            f"{judged.pattern}: from complete there is no way back, and SQL may no longer be written. Go on?"
        )
        return click.confirm(what)


def fit_reason(reason: str) -> None:
    """Raises: SettingsError where the audit has no room for it."""
    if len(reason) > _LETTERS:
        raise SettingsError(f"a reason has at most {_LETTERS} letters")


def own_name() -> str:
    """Who gives this command, as far as this machine knows."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def move_options(command: Any) -> Any:
    for option in reversed(
        (
            click.option("--dry-run", is_flag=True, help="Show the evidence, move nothing."),
            click.option(
                "--override", metavar="REASON", help="Move against the evidence; the audit keeps why."
            ),
            click.option("--reason", default="", help="For the audit."),
            click.option("--who", default=own_name, help="For the audit (default: user@host)."),
            click.option(
                "--gone",
                multiple=True,
                metavar="ID",
                help="This silent instance is gone for sure; can be given again.",
            ),
            click.option("--wait", is_flag=True, help="Wait until every living reader acts by it."),
            click.option("--yes", is_flag=True, help="Do not ask before complete; for scripts."),
            json_option,
        )
    ):
        command = option(command)
    return command


def known_pattern(name: str, known: Sequence[str]) -> None:
    """Raises: SettingsError where there is no such pattern."""
    if name not in known:
        raise SettingsError(f"the mapping has no access pattern '{name}'{did_you_mean(name, known)}")


def vouched_for(desk: Desk, ids: Sequence[str]) -> list[str]:
    """What the audit is to say of silent instances that an operator vouches for. Raises: SettingsError where one is not
    silent."""
    roster = desk.roster()
    known = {one.id: one for one in roster.known}
    for id_ in ids:
        if id_ not in known:
            silent = ", ".join(one.id for one in roster.silent) or "none"
            raise SettingsError(f"--gone {id_}: there is no such instance; silent ones: {silent}")
        if known[id_] in roster.living:
            age = age_text(roster.age_s(known[id_]))
            raise SettingsError(
                f"--gone {id_}: {who(known[id_])} is alive, heard of {age} ago; stop it first"
            )
    return [f"said to be gone: {who(known[id_])}" for id_ in ids]


def strike(desk: Desk, ids: Sequence[str]) -> None:
    """Takes instances off the list, once the audit says who vouched for it; those that were heard of meanwhile stay.

    One that lives all the same comes back with its next heartbeat.
    """
    for one in desk.roster().silent:
        if one.id in ids:
            desk.instances.leave(one)
