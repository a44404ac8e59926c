"""The commands under Cut over as click sees them: `cutover` and `reverse`, patterns moved to DynamoDB and back."""

from __future__ import annotations

import getpass
import socket
from typing import Any

import click

from migrator.cli import command_line as cli
from migrator.cli import names

PHASES = ("off", "shadow", "ramp", "live", "complete")
"""The phases of `migrator.mapping.model.evidence`, copied so that help does not import it."""


def own_name() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


from_option = cli.option(
    "--from",
    "The phase that `cutover status` showed; if it has changed, nothing is moved.",
    "shown",
    type=click.Choice(PHASES),
)


def move_options(command: Any) -> Any:
    for option in reversed(
        (
            cli.flag("--dry-run", "Show the evidence, move nothing."),
            cli.option("--override REASON", "Move against the evidence; the reason is kept in the audit."),
            from_option,
            cli.option("--reason", "Reason to keep in the audit.", default=""),
            cli.option("--who", "Name to keep in the audit (default: user@host).", default=own_name),
            cli.option(
                "--evict ID",
                "Confirm that this timed-out instance no longer runs; may be repeated.",
                "gone",
                multiple=True,
            ),
            cli.flag(
                "--one-way",
                "Move to complete without a rollback, without `migrator reverse`. The audit keeps it.",
            ),
            cli.flag("--wait", "Wait until every running reader uses the new phase."),
            cli.flag("--yes", "Skip the question before complete; for scripts."),
            cli.json_option,
        )
    ):
        command = option(command)
    return command


@click.group(cls=cli.Branch)
def cutover() -> None:
    """Move access patterns one by one from SQL to DynamoDB (off, shadow, ramp, live, complete), and back."""


@cutover.command(example="jobs/shop.yaml")
@cli.job_argument
@click.argument("pattern", required=False, shell_complete=names.patterns)
@cli.flag("--history", "Show every move: who, when, from where to where, by what evidence, and why.")
@cli.json_option
def status() -> cli.Work:
    """Show which side answers each access pattern, and how many readers use that phase.

    Exit code 2: a phase was edited by hand (the others are shown).
    """
    from migrator.commands.cutover_work import status

    return status


@cutover.command(example="jobs/shop.yaml recent_orders --wait")
@cli.job_argument
@click.argument("pattern", shell_complete=names.patterns)
@move_options
def advance() -> cli.Work:
    """Move a pattern to its next phase, if the evidence allows it.

    off -> shadow -> ramp (1 %) -> live -> complete. It prints every line of evidence; an unknown line blocks the move.

    Exit code 0: moved (with --dry-run: it would be); 1: refused, or moved by another command; 2: wrong use.
    """
    from migrator.commands.cutover_work import advance

    return advance


@cutover.command(example="jobs/shop.yaml recent_orders 10 --for user_id=42")
@cli.job_argument
@click.argument("pattern", shell_complete=names.patterns)
@click.argument("percent", type=int)
@cli.option(
    "--for NAME=VALUE",
    "The table also answers every call with this parameter; may be repeated.",
    "aimed",
    multiple=True,
)
@cli.option("--not-for NAME=VALUE", "Remove a parameter that --for added.", "no_more", multiple=True)
@move_options
def ramp() -> cli.Work:
    """Let the table answer PERCENT of a pattern's calls: 1 to 100, always the same calls. A smaller ramp needs no evidence.

    With --for, PERCENT may be 0. --not-for, a rollback and live end it.
    """
    from migrator.commands.cutover_work import ramp

    return ramp


@cutover.command(example='jobs/shop.yaml recent_orders --reason "p99 doubled"')
@cli.job_argument
@click.argument("pattern", required=False, shell_complete=names.patterns)
@cli.flag("--all", "Every pattern that the table answers, and with --to off those in shadow.", "every")
@cli.option(
    "--to",
    "The phase to return to (default: shadow; from shadow: off).",
    type=click.Choice(["shadow", "off"]),
)
@from_option
@cli.option("--reason", "Reason to keep in the audit.", default="")
@cli.option("--who", "Name to keep in the audit (default: user@host).", "who_", default=own_name)
@cli.flag("--wait", "Wait until every running reader uses the new phase.")
@cli.rows_settle_option
@cli.option(
    "--unwritten ENTITY",
    "From complete: no service wrote its items itself; the audit keeps it. May be repeated.",
    multiple=True,
)
@cli.flag(
    "--drop-attributes",
    "From complete: attributes that services added and that have no column may be lost; the audit keeps the names.",
)
@cli.flag("--yes", "From complete: the services have stopped; for scripts.")
@cli.json_option
def rollback() -> cli.Work:
    """Let SQL answer a pattern again, or all of them. Needs no evidence, no source and no table.

    From complete (one pattern at a time) rows become the truth again first: with its entities out of `writes: {direct}`
    of the job, and every service that writes them stopped; where every pattern is complete, all entities that the job does
    not name there. The rest of the stream is processed, rows and items are compared both ways, changes are captured again,
    and items follow the rows. Run it again to resume.

    Exit code 0: moved back; 1: refused, moved by another command, or with --wait not all readers followed.
    """
    from migrator.commands.rollback_work import rollback

    return rollback


@cutover.command(example="jobs/shop.yaml")
@cli.job_argument
@cli.flag("--once", "Look once and end; exit code 1 where a pattern was moved back.")
@cli.json_option
def watch() -> cli.Work:
    """Watch patterns that the table answers, and move one back to shadow if errors, differences or p99 exceed a limit.

    Runs until it is stopped (Ctrl-C, SIGTERM). Limits: `cutover: {watch: …}` in the job. Hooks receive rolled_back
    and lag_high. Exit code 2 of --once: a pattern could not be checked.
    """
    from migrator.commands.cutover_work import watch

    return watch


# ── `migrator reverse`: a service's writes to the table become rows of the source again ──


@click.group(cls=cli.Branch)
def reverse() -> None:
    """Keep the source's rows up to date with what services write to the table, for a rollback."""


@reverse.command(example="jobs/shop.yaml")
@cli.job_argument
@cli.json_option
def check() -> cli.Work:
    """Check that rows can be made from items: per table, with the lost column and the line that would keep it;
    and that the table's stream is on.

    Of the entities in writes.direct; of all if it names none. Once services write items, it also reads the table and counts
    the attributes that have no column. Exit code 1: something blocks it.
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
    """Read the table's stream, and write the rows of changed items into the source.

    Runs until it is stopped (Ctrl-C, SIGTERM, `migrator reverse stop`); several may run at once, on several hosts with one
    journal. Start it before a pattern is complete: while no entity is direct it reads the stream and writes nothing.
    It writes the rows of an entity once `migrator capture install` has recorded that the service writes it. From then on
    triggers refuse writes by others to its tables, until the rollback.

    Exit code 0; 1: with --once, rows are stuck (see `migrator reverse status`); 2: rows cannot be made from items, or
    the stream is off; 3: a store is unavailable, the stream has lost changes, or `migrator cutover rollback`
    is running.
    """
    from migrator.commands.reverse_work import start

    return start


@reverse.command(name="status", example="jobs/shop.yaml")
@cli.job_argument
@cli.flag("--attributes", "Also read the table, and count attributes of items that no row keeps.")
@cli.json_option
def reverse_status() -> cli.Work:
    """Show how far each shard of the stream is behind, which rows are pending and why, and which tables refuse SQL writers.

    Exit code 1: it was never started, is further behind than cutover.lag_max_s of the job, or rows are stuck.
    """
    from migrator.commands.reverse_work import status

    return status


@reverse.command(example="jobs/shop.yaml")
@cli.job_argument
@cli.json_option
def stop() -> cli.Work:
    """Stop every process of `migrator reverse start` of this job, on any host, after its current work."""
    from migrator.commands.reverse_work import stop

    return stop


@reverse.command(example="jobs/shop.yaml --repair")
@cli.job_argument
@cli.flag(
    "--repair",
    "Print how many rows differ, write each from its items, then compare again; rows that no item contains stay.",
)
@cli.flag("--delete-rows", "With --repair: delete rows that no item contains, also those that never had one.")
@cli.flag("--dry-run", "With --repair: print what differs, and write nothing.")
@cli.rows_settle_option
@cli.keys_option
@cli.json_option
def verify() -> cli.Work:
    """Compare each row with its items, and each item with its rows.

    Of the entities in writes.direct, or of all if none is named. It may run while `migrator reverse start` is running;
    pending changes are checked again. --repair writes rows in the same way, and needs that no backfill and no rollback is
    running.

    Exit code 0: rows match their items; 1: differences, or attributes without a column; 2: rows cannot be made
    from items, or, with --repair, the stream is off or was never read; 3 and 130: stopped.
    """
    from migrator.commands.reverse_work import verify

    return verify
