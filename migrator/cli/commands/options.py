"""Options and arguments that several commands have."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import click

from migrator.cli.command_line import Renamed
from migrator.model.durations import ADVICE, seconds_of
from migrator.model.phase import PHASES

JobPath = click.Path(path_type=Path, dir_okay=True)
job_argument = click.argument("job", type=JobPath, metavar="JOB")
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
keys_option = click.option(
    "--show-keys",
    "whole_keys",
    cls=Renamed,
    former="--keys",
    is_flag=True,
    help="Print keys whole, also the parts that may name a person.",
)
_ADOPT = "Take this journal for the table's from now on: the one that it was written with is lost for good."
adopt_option = click.option("--adopt-journal", cls=Renamed, former="--force", is_flag=True, help=_ADOPT)


def force_option(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`--force`, which `what` says the meaning of."""
    return click.option("--force", cls=Renamed, former="--anyway", is_flag=True, help=what)


def entity_option(command: Any) -> Any:
    return click.option("--entity", "entities", multiple=True, help="Only this entity; can be given again.")(
        command
    )


def seconds(ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
    """The seconds of a duration such as 90s, 5m, 2h, 1d, or of a number."""
    if text is None:
        return None
    try:
        return seconds_of(text)
    except ValueError as error:
        raise click.BadParameter(f"'{text}' is no duration; {error}") from None


def some_seconds(ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
    """The same of a duration that is more than nothing."""
    found = seconds(ctx, param, text)
    if found == 0:
        raise click.BadParameter(f"'{text}' is no time at all; {ADVICE}")
    return found


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
                "--evict",
                "gone",
                cls=Renamed,
                former="--gone",
                multiple=True,
                metavar="ID",
                help="This silent instance is gone for sure; can be given again.",
            ),
            click.option(
                "--evict-older-than",
                "evict_older_s",
                metavar="DURATION",
                callback=some_seconds,
                help="Every instance that has been silent for longer is gone for sure, such as 10m after a deployment.",
            ),
            click.option("--wait", is_flag=True, help="Wait until every living reader acts by it."),
            click.option("--yes", is_flag=True, help="Do not ask before complete; for scripts."),
            json_option,
        )
    ):
        command = option(command)
    return command
