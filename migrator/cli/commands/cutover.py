"""`migrator cutover`: patterns moved from SQL to DynamoDB, and back."""

from __future__ import annotations

import click

from migrator.cli.command_line import (
    Branch,
    Work,
    adopt_option,
    from_option,
    job_argument,
    json_option,
    move_options,
    own_name,
)


@click.group(cls=Branch)
def cutover() -> None:
    """Move access patterns from SQL to DynamoDB one by one: off, shadow, ramp, live, complete; and back."""


@cutover.command()
@job_argument
@click.argument("pattern", required=False)
@json_option
@adopt_option
def status() -> Work:
    """Show who answers each access pattern, and how many readers act by it.

    Exit code 2: a phase was edited by hand; the others are shown all the same.
    """
    from migrator.cli.cutover.watch import status

    return status


@cutover.command()
@job_argument
@click.argument("pattern", required=False)
@json_option
@adopt_option
def history() -> Work:
    """Show every move: who, when, from where to where, by what evidence, and why."""
    from migrator.cli.cutover.watch import history

    return history


@cutover.command()
@job_argument
@click.argument("pattern")
@move_options
@adopt_option
def advance() -> Work:
    """Move a pattern to its next phase, if the evidence is for it.

    off -> shadow -> ramp (1 %) -> live -> complete. Every line of evidence is shown; what is not known counts as a no.

    Exit code 0: moved (with --dry-run: it would be); 1: refused, or somebody else has moved it; 2: wrong use.
    """
    from migrator.cli.cutover.moves import advance

    return advance


@cutover.command()
@job_argument
@click.argument("pattern")
@click.argument("percent", type=int)
@move_options
@adopt_option
def ramp() -> Work:
    """Let the table answer PERCENT of a pattern's calls: 1 to 100, always the same calls. Going down needs no evidence."""
    from migrator.cli.cutover.moves import ramp

    return ramp


@cutover.command()
@job_argument
@click.argument("pattern", required=False)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Every pattern that the table answers, and with --to off those in shadow.",
)
@click.option(
    "--to", type=click.Choice(["shadow", "off"]), help="Where to (default: shadow; from shadow: off)."
)
@from_option
@click.option("--reason", default="", help="For the audit.")
@click.option("--who", "who_", default=own_name, help="For the audit (default: user@host).")
@click.option("--wait", is_flag=True, help="Wait until every living reader acts by it.")
@json_option
@adopt_option
def rollback() -> Work:
    """Let SQL answer a pattern again, or all of them. Needs no evidence, no source and no table; from complete there is no
    way back.

    Exit code 0: moved back; 1: somebody else has moved it meanwhile, or with --wait not all readers followed.
    """
    from migrator.cli.cutover.moves import rollback

    return rollback


@cutover.command()
@job_argument
@click.option("--once", is_flag=True, help="Look once and end; exit code 1 where a pattern was moved back.")
@json_option
@adopt_option
def watch() -> Work:
    """Look at patterns that the table answers, and move one back to shadow when errors, differences or p99 pass a limit.

    Runs until it is stopped (Ctrl-C, SIGTERM). Limits: `cutover: {watch: …}` in the job. Hooks are told of rolled_back
    and of lag_high. Exit code 2 of --once: a pattern could not be looked at.
    """
    from migrator.cli.cutover.watch import watch

    return watch
