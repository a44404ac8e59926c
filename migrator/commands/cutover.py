"""`migrator cutover`: patterns moved from SQL to DynamoDB, and back."""

from __future__ import annotations

import getpass
import socket
from typing import Any

import click

from migrator.cli import command_line as cli
from migrator.cli import names

PHASES = ("off", "shadow", "ramp", "live", "complete")
"""Those of `migrator.mapping.model.evidence`, which a help does not wait for."""


def own_name() -> str:
    """The user and host that this command is given by, as far as this machine knows."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


from_option = cli.option(
    "--from",
    "The phase that `cutover status` showed; where it is another one by now, nothing is moved.",
    "shown",
    type=click.Choice(PHASES),
)


def move_options(command: Any) -> Any:
    for option in reversed(
        (
            cli.flag("--dry-run", "Show the evidence, move nothing."),
            cli.option("--override REASON", "Move against the evidence; the audit keeps why."),
            from_option,
            cli.option("--reason", "For the audit.", default=""),
            cli.option("--who", "For the audit (default: user@host).", default=own_name),
            cli.option(
                "--evict ID",
                "This silent instance is gone for sure; can be given again.",
                "gone",
                multiple=True,
            ),
            cli.flag(
                "--one-way",
                "Go to complete without a way back: without `migrator reverse`; the audit keeps it.",
            ),
            cli.flag("--wait", "Wait until every living reader acts by it."),
            cli.flag("--yes", "Do not ask before complete; for scripts."),
            cli.json_option,
        )
    ):
        command = option(command)
    return command


@click.group(cls=cli.Branch)
def cutover() -> None:
    """Move access patterns from SQL to DynamoDB one by one: off, shadow, ramp, live, complete; and back."""


@cutover.command(example="jobs/shop.yaml")
@cli.job_argument
@click.argument("pattern", required=False, shell_complete=names.patterns)
@cli.flag("--history", "Show every move: who, when, from where to where, by what evidence, and why.")
@cli.json_option
def status() -> cli.Work:
    """Show who answers each access pattern, and how many readers act by it.

    Exit code 2: a phase was edited by hand; the others are shown all the same.
    """
    from migrator.commands.cutover_work import status

    return status


@cutover.command(example="jobs/shop.yaml recent_orders --wait")
@cli.job_argument
@click.argument("pattern", shell_complete=names.patterns)
@move_options
def advance() -> cli.Work:
    """Move a pattern to its next phase, if the evidence is for it.

    off -> shadow -> ramp (1 %) -> live -> complete. Every line of evidence is shown; what is not known counts as a no.

    Exit code 0: moved (with --dry-run: it would be); 1: refused, or somebody else has moved it; 2: wrong use.
    """
    from migrator.commands.cutover_work import advance

    return advance


@cutover.command(example="jobs/shop.yaml recent_orders 10 --for user_id=42")
@cli.job_argument
@click.argument("pattern", shell_complete=names.patterns)
@click.argument("percent", type=int)
@cli.option(
    "--for NAME=VALUE",
    "The table also answers every call with this parameter; also several, each of which is enough.",
    "aimed",
    multiple=True,
)
@cli.option("--not-for NAME=VALUE", "Take one away that --for gave.", "no_more", multiple=True)
@move_options
def ramp() -> cli.Work:
    """Let the table answer PERCENT of a pattern's calls: 1 to 100, always the same calls. Going down needs no evidence.

    A ramp that is for somebody (--for) may have 0 percent. Its share may change; --not-for, a rollback and live end it.
    """
    from migrator.commands.cutover_work import ramp

    return ramp


@cutover.command(example='jobs/shop.yaml recent_orders --reason "p99 doubled"')
@cli.job_argument
@click.argument("pattern", required=False, shell_complete=names.patterns)
@cli.flag("--all", "Every pattern that the table answers, and with --to off those in shadow.", "every")
@cli.option("--to", "Where to (default: shadow; from shadow: off).", type=click.Choice(["shadow", "off"]))
@from_option
@cli.option("--reason", "For the audit.", default="")
@cli.option("--who", "For the audit (default: user@host).", "who_", default=own_name)
@cli.flag("--wait", "Wait until every living reader acts by it.")
@cli.rows_settle_option
@cli.option(
    "--unwritten ENTITY",
    "From complete: no service wrote its items itself; the audit keeps it. May be repeated.",
    multiple=True,
)
@cli.flag(
    "--drop-attributes",
    "From complete: what services added to items and no row keeps may go; the audit keeps the names.",
)
@cli.flag("--yes", "From complete: the services have stopped; for scripts.")
@cli.json_option
def rollback() -> cli.Work:
    """Let SQL answer a pattern again, or all of them. Needs no evidence, no source and no table.

    From complete, and one pattern alone, it makes rows the truth again first: with its entities out of `writes: {direct}`
    of the job, and every service that writes them stopped; where every pattern is complete, all entities that the job does
    not name there. What is left of the stream is worked, rows and items are compared both ways, changes leave marks again,
    and items follow the rows. Given again, it goes on.

    Exit code 0: moved back; 1: refused, somebody else has moved it meanwhile, or with --wait not all readers followed.
    """
    from migrator.commands.rollback_work import rollback

    return rollback


@cutover.command(example="jobs/shop.yaml")
@cli.job_argument
@cli.flag("--once", "Look once and end; exit code 1 where a pattern was moved back.")
@cli.json_option
def watch() -> cli.Work:
    """Look at patterns that the table answers, and move one back to shadow when errors, differences or p99 pass a limit.

    Runs until it is stopped (Ctrl-C, SIGTERM). Limits: `cutover: {watch: …}` in the job. Hooks are told of rolled_back
    and of lag_high. Exit code 2 of --once: a pattern could not be looked at.
    """
    from migrator.commands.cutover_work import watch

    return watch
