"""`migrator status` and `migrator findings`: what the journal of a job holds."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from migrator import live_wiring, wiring
from migrator.cli.instances import known_revision, print_instances
from migrator.cli.keys import as_asked, keys_option, mapping_of, tell_masked
from migrator.cli.lag import lag_of
from migrator.cli.options import job_argument, json_option, read_job, stdout
from migrator.errors import SettingsError
from migrator.ports import Journal, Run
from migrator.report.findings import finding_line
from migrator.report.instances import instances_data


@click.command()
@job_argument
@json_option
def status(job: Path, as_json: bool) -> int:
    """List the runs of a job: what is done, what is left, what was found; how many marks wait, and since when; who writes,
    and which instances of services run."""
    read = read_job(job)
    with wiring.open_journal(read) as journal:
        runs = [_run_data(journal, run) for run in journal.runs(read.name)]
        lag = lag_of(read, journal)
        roster = live_wiring.roster_of(read, journal)
    revision = known_revision(read) if roster.known else None
    if as_json:
        live = lag.data() | {"instances": instances_data(roster, revision)}
        click.echo(json.dumps({"job": read.name, "runs": runs, "live": live}, sort_keys=True))
        return 0
    if runs:
        _print_runs(runs)
    else:
        click.echo(f"job {read.name}: nothing has run yet")
    for line in lag.lines():
        click.echo(line)
    print_instances(roster, revision)
    return 0


def _print_runs(runs: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("run", "kind", "state", "scope", "started", "pages", "rows", "items", "findings"):
        table.add_column(column)
    for run in runs:
        table.add_row(
            *(str(run[column]) for column in ("run", "kind", "state", "scope", "started")), *_counts(run)
        )
    stdout().print(table)


def _counts(run: dict[str, Any]) -> tuple[str, str, str, str]:
    found = ", ".join(f"{number} {kind}" for kind, number in sorted(run["findings"].items()))
    tally = run["tally"]
    return (
        f"{run['pages_done']}/{run['pages_planned']}",
        f"{tally['rows']:,}",
        f"{tally['items']:,}",
        found or "none",
    )


def _run_data(journal: Journal, run: Run) -> dict[str, Any]:
    pages = [journal.page_counts(run, entity) for entity in journal.planned(run)]
    return {
        "run": run.id,
        "kind": run.identity.kind,
        "state": run.state,
        "scope": run.identity.scope or "all",
        "started": run.started_at,
        "ended": run.ended_at,
        "pages_done": sum(done for done, _ in pages),
        "pages_planned": sum(planned for _, planned in pages),
        "tally": asdict(journal.tally(run)),
        "findings": journal.finding_counts(run),
    }


@click.command()
@job_argument
@click.option("--run", "number", type=int, help="The run (default: the newest).")
@click.option("--all", "everything", is_flag=True, help="All findings, not only the first 100.")
@keys_option
@json_option
def findings(job: Path, number: int | None, everything: bool, whole_keys: bool, as_json: bool) -> int:
    """List what a run found: refused rows, collisions, differences; one line each.

    Of keys only what names nobody is shown (constant text, numbers, UUIDs, times), and a mark such as …3f9a
    instead of the rest, unless --keys is given.
    """
    read = read_job(job)
    with wiring.open_journal(read) as journal:
        run = _run(journal, read.name, number)
        found = journal.findings(run, None if everything else 100)
        total = sum(journal.finding_counts(run).values())
    shown = as_asked(found, mapping_of(read), whole_keys=whole_keys)
    for one in shown:
        click.echo(json.dumps(asdict(one), ensure_ascii=False) if as_json else finding_line(one))
    tell_masked(shown, found)
    if not as_json:
        more = f"; {total - len(found):,} more with --all" if total > len(found) else ""
        click.echo(f"run {run.id} ({run.identity.kind}, {run.state}): {total:,} finding(s){more}", err=True)
    return 0


def _run(journal: Journal, job: str, number: int | None) -> Run:
    runs = journal.runs(job)
    if not runs:
        raise SettingsError(f"job {job}: nothing has run yet")
    if number is None:
        return runs[-1]
    for run in runs:
        if run.id == number:
            return run
    raise SettingsError(f"job {job} has no run {number}; see `migrator status`")
