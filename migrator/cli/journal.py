"""`migrator status` and `migrator findings`: what the journal of a job holds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from migrator import live_wiring, wiring
from migrator.cli.belonging import belonging
from migrator.cli.command_line import print_json
from migrator.cli.instances import known_revision, print_instances
from migrator.cli.keys import as_asked, mapping_of, tell_masked
from migrator.cli.lag import lag_of
from migrator.cli.options import read_job, shown_path, stdout
from migrator.errors import SettingsError
from migrator.journal.store import SqlJournal
from migrator.ports import Finding, Journal, Run
from migrator.report.findings import finding_line
from migrator.report.instances import instances_data
from migrator.settings import Job


@belonging(applies=lambda asked: not asked["same_job"], tells=True)
def status(job: Path, as_json: bool, same_job: bool, table_away: str = "") -> int:
    """The exit code of `migrator status`."""
    read = read_job(job)
    if same_job:
        for kind, name in wiring.keep_names(read).items():
            click.echo(f"on record as job {read.name}'s {kind}: {name}", err=True)
    with wiring.open_journal(read) as journal:
        runs = [_run_data(journal, run) for run in journal.runs(read.name)]
        lag = lag_of(read, journal)
        roster = live_wiring.roster_of(read, journal)
        where = journal.name
    revision = known_revision(read) if roster.known or lag.newest is not None else None
    if as_json:
        live = lag.data() | {"instances": instances_data(roster, revision), "table_away": table_away}
        about = {"job": read.name, "journal": where, "runs": runs, "live": live}
        click.echo(json.dumps(about, sort_keys=True))
        return 0
    click.echo(f"journal: {shown_path(where)}")
    if runs:
        _print_runs(runs)
    else:
        click.echo(f"job {read.name}: nothing has run yet")
    if table_away:
        click.echo(f"table: DynamoDB cannot be asked: {table_away}")
    for line in lag.lines(revision):
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
    # A relay has no pages; it keeps its counts as if they were of one.
    planned = () if run.identity.kind == "relay" else journal.planned(run)
    pages = [journal.page_counts(run, entity) for entity in planned]
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


def findings(job: Path, number: int | None, everything: bool, whole_keys: bool, as_json: bool) -> int:
    """The exit code of `migrator findings`."""
    read = read_job(job)
    with wiring.open_journal(read) as journal:
        listed = list(_listed(read, journal, number, None if everything else 100))
    found = [finding for one in listed for finding in one.found]
    shown = as_asked(found, mapping_of(read), whole_keys=whole_keys)
    tell_masked(shown, found)
    if as_json:
        lists = [{**one.about, "total": one.total} for one in listed]
        total = sum(one.total for one in listed)
        rows = [asdict(one) for one in shown]
        print_json({"job": read.name, "lists": lists, "total": total, "findings": rows})
        return 0
    for line in shown:
        click.echo(finding_line(line))
    for one in listed:
        left = one.total - len(one.found)
        more = f"; {left:,} more with --all" if left > 0 else ""
        click.echo(f"{one.of}: {one.total:,} finding(s){more}", err=True)
    return 0


@dataclass(frozen=True)
class _Listed:
    """Findings that are listed together, the first of `total`; `about`: the run that they are of; empty for live change."""

    about: dict[str, Any]
    found: Sequence[Finding]
    total: int

    @property
    def of(self) -> str:
        return "run {run} ({kind}, {state})".format(**self.about) if self.about else "live change, open"


def _listed(job: Job, journal: SqlJournal, number: int | None, limit: int | None) -> Iterator[_Listed]:
    run = _run(journal, job.name, number)
    if number is None and any(one.identity.kind == "relay" for one in journal.runs(job.name)):
        opened = live_wiring.open_findings_of(job, journal)
        yield _Listed({}, opened.read(limit), sum(opened.counts().values()))
    # What a relay found and still holds is open.
    if number is not None or run.identity.kind != "relay":
        about = {"run": run.id, "kind": run.identity.kind, "state": run.state}
        yield _Listed(about, journal.findings(run, limit), sum(journal.finding_counts(run).values()))


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
