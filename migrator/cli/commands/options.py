"""Options and arguments that several commands have."""

from __future__ import annotations

import getpass
import re
import socket
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import click

from migrator.errors import SettingsError
from migrator.phase import PHASES

JobPath = click.Path(path_type=Path, dir_okay=True)
job_argument = click.argument("job", type=JobPath, metavar="JOB")
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
keys_option = click.option(
    "--keys", "whole_keys", is_flag=True, help="Print keys whole, also the parts that may name a person."
)
_FORCE = "Take this journal for the table's from now on: the one that it was written with is lost for good."
force_option = click.option("--force", is_flag=True, help=_FORCE)


def entity_option(command: Any) -> Any:
    return click.option("--entity", "entities", multiple=True, help="Only this entity; can be given again.")(
        command
    )


def seconds(ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
    """A duration such as 30s, 30 or 2m, in seconds."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|m|)", text.strip())
    if found is None:
        raise click.BadParameter(f"'{text}' is no duration; write 30s or 2m")
    return float(found[1]) * (60 if found[2] == "m" else 1)


class _Money(click.ParamType):  # type: ignore[type-arg]  # generic only in the newest click
    """US dollars, exact."""

    name = "USD"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Decimal:
        try:
            amount = Decimal(str(value))
        except InvalidOperation:
            amount = Decimal("NaN")
        if not (amount.is_finite() and amount >= 0):
            self.fail("write an amount in US dollars, such as 12.50", param, ctx)
        return amount


MONEY = _Money()


# ── moves of access patterns ──


def own_name() -> str:
    """Who gives this command, as far as this machine knows."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


from_option = click.option(
    "--from",
    "shown",
    type=click.Choice(PHASES),
    help="The phase that `cutover status` showed; where it is another one by now, nothing is moved.",
)


def _duration(_: click.Context, __: click.Parameter, text: str | None) -> float | None:
    """In seconds. Raises: SettingsError."""
    if text is None:
        return None
    from migrator.cutover_settings import duration_s  # here: a help needs no settings

    try:
        found = float(duration_s(text))
    except ValueError as error:
        raise SettingsError(f"--evict-older-than {text}: {error}") from None
    if not found:
        raise SettingsError("--evict-older-than: write a duration that is more than nothing, such as 10m")
    return found


def move_options(command: Any) -> Any:
    for option in reversed(
        (
            click.option("--dry-run", is_flag=True, help="Show the evidence, move nothing."),
            click.option(
                "--override", metavar="REASON", help="Move against the evidence; the audit keeps why."
            ),
            from_option,
            click.option("--reason", default="", help="For the audit."),
            click.option("--who", default=own_name, help="For the audit (default: user@host)."),
            click.option(
                "--gone",
                multiple=True,
                metavar="ID",
                help="This silent instance is gone for sure; can be given again.",
            ),
            click.option(
                "--evict-older-than",
                "evict_older_s",
                metavar="DURATION",
                callback=_duration,
                help="Every instance that has been silent for longer is gone for sure, such as 10m after a deployment.",
            ),
            click.option("--wait", is_flag=True, help="Wait until every living reader acts by it."),
            click.option("--yes", is_flag=True, help="Do not ask before complete; for scripts."),
            json_option,
        )
    ):
        command = option(command)
    return command
