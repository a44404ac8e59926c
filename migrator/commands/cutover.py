"""The commands under Cut over as click sees them: `cutover` and `reverse`, patterns moved to DynamoDB and back."""

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


# ── `migrator reverse`: what services write to the table becomes rows of the source again ──


@click.group(cls=cli.Branch)
def reverse() -> None:
    """Keep rows of the source up with what services write to the table: a way back."""


@reverse.command(example="jobs/shop.yaml")
@cli.job_argument
@cli.json_option
def check() -> cli.Work:
    """Say whether the rows come back from the items: per table, or which column is lost and the line that would keep it;
    and whether the table's stream is on.

    Of the entities in writes.direct; of all if it names none. Once services write items, it also reads the table and counts
    the attributes that no row keeps. Exit code 1: something stands in the way.
    """
    from migrator.commands.reverse_work import check

    return check


@reverse.command(example="jobs/shop.yaml")
@cli.job_argument
@cli.flag("--once", "Stop when all is worked that was written before it began.")
@cli.flag(
    "--restart",
    "Begin the stream again, after it was lost or replaced; then also run `migrator reverse verify --repair`.",
)
@cli.flag("--dry-run", "Say what stands in the way and what waits, change nothing.")
@cli.rows_settle_option
@cli.json_option
def start() -> cli.Work:
    """Read the table's stream, and write the rows of each item that changed into the source.

    Runs until it is stopped (Ctrl-C, SIGTERM, `migrator reverse stop`); several may run at once, on several hosts with one
    journal. Start it before a pattern is complete: as long as no entity is direct it reads the stream and writes nothing,
    and makes rows of an entity as soon as `migrator capture install` has put on record that the service writes it. From then
    on triggers refuse what others write to its tables, until the way back.

    Exit code 0; 1: with --once, rows wait that no time mends (see `migrator reverse status`); 2: rows do not come back, or
    the stream is off; 3: an edge gave up, the stream has lost changes, or `migrator cutover rollback` is at work, which the
    message says.
    """
    from migrator.commands.reverse_work import start

    return start


@reverse.command(name="status", example="jobs/shop.yaml")
@cli.job_argument
@cli.flag("--attributes", "Also read the table, and count attributes of items that no row keeps.")
@cli.json_option
def reverse_status() -> cli.Work:
    """Say how far each shard of the stream is behind, which rows wait, and why, and of which tables SQL writers are refused.

    Exit code 1 where it was not begun, is further behind than cutover.lag_max_s of the job, or rows wait that the source
    refused or no row fits.
    """
    from migrator.commands.reverse_work import status

    return status


@reverse.command(example="jobs/shop.yaml")
@cli.job_argument
@cli.json_option
def stop() -> cli.Work:
    """End every process of `migrator reverse start` of this job, once what is under way is done; on any host."""
    from migrator.commands.reverse_work import stop

    return stop


@reverse.command(example="jobs/shop.yaml --repair")
@cli.job_argument
@cli.flag(
    "--repair",
    "Say how many rows differ, write each as its items say, then compare again; rows that no item holds stay.",
)
@cli.flag(
    "--delete-rows", "With --repair: rows that no item holds are deleted, also those that never had one."
)
@cli.flag("--dry-run", "With --repair: say what differs, and write nothing.")
@cli.rows_settle_option
@cli.keys_option
@cli.json_option
def verify() -> cli.Work:
    """Compare each row with what its items say, and each item with its rows.

    Of the entities in writes.direct, or of all, where there are none yet. It may run beside `migrator reverse start`; what
    is on its way is looked at again. With --repair rows are written as that one writes them, and with --delete-rows go as
    late; no backfill and no way back runs meanwhile.

    Exit code 0: rows are what the items say; 1: differences, or attributes that no row keeps; 2: rows do not come back, or,
    with --repair, the stream is off or was not begun with; 3 and 130: stopped.
    """
    from migrator.commands.reverse_work import verify

    return verify
