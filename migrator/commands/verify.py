"""`migrator verify` and `migrator shadow`: both sides compared."""

from __future__ import annotations

import click

from migrator.cli import command_line as cli


@click.command(cls=cli.Leaf, example="jobs/shop.yaml --sample 1%")
@cli.job_argument
@cli.option("--workers", "Pages under way at once.", type=click.IntRange(1, 64))
@cli.flag(
    "--join",
    "Compare pages of the verify of this job at work with tuning.processes, on this host or another, until it ends.",
)
@cli.part_option
@cli.spark_option
@cli.option("--sample", "Only a part of the rows, against their items: 1%, 0.5% or 1000 rows.")
@cli.option("--seed", "Of the sample; the same seed looks at the same rows again.", type=click.IntRange(0))
@cli.flag("--repair", "Leave a mark for every row that still differs; the relay does the rest.")
@cli.flag("--force", "With --repair: also where every access pattern is complete.")
@cli.flag("--dry-run", "With --repair: say how many rows it would mark, and mark none.")
@cli.flag("--restart", "Look at everything anew, even where a stopped verify would go on.")
@cli.duration(
    "--settle",
    "How long to wait before differences of a live source are looked at again (default 10s).",
    "settle_s",
)
@cli.option(
    "--source URL",
    "Read rows as another user or from another server than the job's, such as env:NAME (or file:, secret:, a URL).",
    "source_url",
)
@cli.keys_option
@cli.json_option
def verify() -> cli.Work:
    """Compare every row with its items and every item with its row, and totals by plain SQL.

    Where changes are captured, differences are looked at again after a moment: both sides may have been in flight.
    With --sample only rows against items, and only some: neither items without a row nor totals are looked at.
    One that was stopped within the last hour goes on; what it looked at before it does not look at again.
    With --source the copy and its check do not share what one user is shown; marks are read by the job's own.

    Exit code 0: clean; 1: differences (see `migrator status --findings`); 3 and 130: stopped, the same command goes on.
    """
    from migrator.commands.verify_work import verify

    return verify


@click.group(cls=cli.Branch)
def shadow() -> None:
    """Compare DynamoDB's answers with SQL's."""


@shadow.command(example="jobs/shop.yaml --sample 100")
@cli.job_argument
@cli.option("--pattern P", "Only this pattern; can be given again.", "names", multiple=True)
@cli.option(
    "--sample", "Questions a pattern.", "questions", type=click.IntRange(1), default=200, show_default=True
)
@cli.option("--seed", "The same seed asks the same questions of the same rows.", type=click.IntRange(0))
@cli.duration("--settle", "How long both sides may take to come to the same answer (default 3s).", "settle_s")
@cli.flag("--control", "Compare SQL with SQL: the noise of the source itself.")
@cli.option("--workers", "Questions at once.", type=click.IntRange(1, 64), default=4, show_default=True)
@cli.flag("--dry-run", "Keep nothing of it in the journal.")
@cli.json_option
def replay() -> cli.Work:
    """Ask every access pattern of both sides, with parameters drawn from the source, and compare the answers.

    Neither source nor table is written to, and no service has to run; what was compared goes to the journal, for
    `migrator report`. A difference is looked at again until --settle is over: what goes away by itself is transient and
    does not count.

    Exit code 0: clean; 1: differences, errors of one side, or not proven, because no question could be drawn for a pattern;
    3 and 130: stopped.
    """
    from migrator.commands.query_work import replay

    return replay
