"""`migrator verify`: rows against items, both ways."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Mapping
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import Any

import click

from migrator import live_wiring, truth_wiring, verify_wiring, wiring
from migrator.cli.keys import as_asked, keys_option, tell_masked
from migrator.cli.options import (
    job_argument,
    json_option,
    progress,
    read_job,
    seconds,
    stdout,
    stop_on_signals,
)
from migrator.cli.runs import RunEnd, identity_of, need_bucket
from migrator.errors import DIFFERENT, SettingsError
from migrator.journal.lease import RunLease
from migrator.journal.store import SqlJournal
from migrator.live_wiring import Live
from migrator.mapping.direct import direct_items
from migrator.model import ItemKey
from migrator.ports import Run, RunIdentity
from migrator.ports.live import Root
from migrator.report.findings import SHOWN, print_findings
from migrator.report.results import print_verify, verify_data
from migrator.results import Sample, VerifyResult
from migrator.retry import nap
from migrator.stages.second_look import LOOKED_AT, SecondLook
from migrator.stages.verify import Verify, VerifyOptions
from migrator.wiring import Laid, Target

DEFAULT_SETTLE_S = 10.0


@click.command()
@job_argument
@click.option("--workers", type=click.IntRange(1, 64), help="Pages under way at once.")
@click.option("--sample", "part", help="Only a part of the rows, against their items: 1%, 0.5% or 1000 rows.")
@click.option(
    "--seed", type=click.IntRange(0), help="Of the sample; the same seed looks at the same rows again."
)
@click.option(
    "--repair", is_flag=True, help="Leave a mark for every row that still differs; the relay does the rest."
)
@click.option("--anyway", is_flag=True, help="With --repair: also where every access pattern is complete.")
@click.option(
    "--dry-run", is_flag=True, help="With --repair: say how many rows it would mark, and mark none."
)
@click.option(
    "--again", is_flag=True, help="Look at everything anew, even where a stopped verify would go on."
)
@click.option(
    "--settle",
    "settle_s",
    callback=seconds,
    metavar="SECONDS",
    help="How long to wait before differences of a live source are looked at again (default 10s).",
)
@keys_option
@json_option
def verify(job: Path, workers: int | None, part: str | None, seed: int | None, **asked: Any) -> int:
    """Compare every row with its items and every item with its row, and totals by plain SQL.

    Where changes are captured, differences are looked at again after a moment: both sides may have been in flight.
    With --sample only rows against items, and only some: neither items without a row nor totals are looked at.
    One that was stopped within the last hour goes on; what it looked at before it does not look at again.

    Exit code 0: clean; 1: differences (see `migrator findings`); 3 and 130: stopped, the same command goes on.
    """
    if asked["dry_run"] and not asked["repair"]:
        raise SettingsError("--dry-run goes with --repair; without it verify writes nothing anyway")
    read = read_job(job)
    sample = _sample(part, seed)
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        laid = stack.enter_context(wiring.lay(read, "verify", workers=workers, stop=stop.is_set))
        need_bucket(read, laid.checked.entities)
        target = wiring.open_target(read, laid.checked.mapping.table, stop.is_set)
        table_id = live_wiring.existing_table(read, target)
        journal = stack.enter_context(wiring.open_journal(read))
        lease = stack.enter_context(RunLease(journal, read.name))
        if asked["repair"] and not asked["anyway"]:
            truth_wiring.refuse_complete(read, laid.checked.mapping, journal)
        scope = "" if sample is None else f"sample={sample};seed={sample.seed}"
        identity = identity_of("verify", laid, table_id, laid.checked.entities, scope)
        stage = _stage(laid, target, journal, sample, workers)
        stage.stop, stage.check, stage.direct = stop, lease.check, direct_items(laid.checked)
        # Before the run begins: where capture cannot be looked at, or an option does not fit, there is none.
        live, captured = _live(stack, stage, laid, target, asked)
        run = _begin(journal, identity, again=asked["again"])
        with RunEnd(journal, run, read.hooks), stage.progress:
            if sample is None:
                verify_wiring.keep_look(live, laid, journal, run)
            result = stage.run(run, laid.checked.entities)
        _print(result, journal, laid, as_json=asked["as_json"], whole_keys=asked["whole_keys"])
        if captured and asked["repair"]:
            _repair(live, result.confirmed, dry_run=asked["dry_run"])
    return DIFFERENT if result.findings else 0


def _begin(journal: SqlJournal, identity: RunIdentity, *, again: bool) -> Run:
    begun = verify_wiring.begin(journal, identity, again=again)
    if begun.told:
        click.echo(begun.told, err=True)
    return begun.run


def _repair(live: Live, confirmed: Mapping[Root, set[ItemKey]], *, dry_run: bool) -> None:
    rows = f"{len(confirmed):,} row(s)"
    if dry_run:
        click.echo(f"{rows} would be marked; --repair without --dry-run marks them", err=True)
        return
    live.marks.add({root: sorted(keys, key=repr) for root, keys in confirmed.items()})
    click.echo(f"{rows} marked; run `migrator relay`, then verify again", err=True)


def _live(
    stack: ExitStack, stage: Verify, laid: Laid, target: Target, asked: Mapping[str, Any]
) -> tuple[Live, bool]:
    """Capture's edges, and whether it is installed; then the verify knows that rows change meanwhile."""
    live = stack.enter_context(
        live_wiring.open_live(laid.job, "verify", stop=stage.stop.is_set, source=laid.source)
    )
    if asked["repair"]:
        live_wiring.need_installation(live, laid)
    elif live.capture.installation() is None:
        if asked["settle_s"] is not None:
            raise SettingsError(
                "--settle is for a source whose changes are captured; see `migrator capture install`"
            )
        return live, False
    entities = {one.name: one for one in laid.checked.entities}
    look = SecondLook(
        *(laid.source, stage.store, stage.journal, entities, target.design, stage.clock, stage.objects)
    )
    settle_s = DEFAULT_SETTLE_S if asked["settle_s"] is None else asked["settle_s"]

    def confirm(run: Run) -> Mapping[Root, set[ItemKey]]:
        if any(kind in LOOKED_AT for kind in stage.journal.finding_counts(run)):
            nap(settle_s, stage.stop.is_set, time.sleep)
        return look.confirm(run)

    before = (live.tickets.highest(), live.marks.state().waiting)
    stage.confirm = confirm
    stage.is_quiet = lambda: before == (live.tickets.highest(), live.marks.state().waiting) and not before[1]
    return live, True


def _print(result: VerifyResult, journal: SqlJournal, laid: Laid, *, as_json: bool, whole_keys: bool) -> None:
    if as_json:
        click.echo(json.dumps(verify_data(result), sort_keys=True))
        return
    print_verify(stdout(), result)
    found = journal.findings(result.run, SHOWN)
    printed = as_asked(found, laid.checked.mapping, whole_keys=whole_keys)
    print_findings(stdout(), printed, result.findings)
    tell_masked(printed, found)


def _stage(
    laid: Laid, target: Target, journal: SqlJournal, sample: Sample | None, workers: int | None
) -> Verify:
    tuning = laid.job.tuning
    options = VerifyOptions(workers or tuning.workers, tuning.page_rows, tuning.scan_segments, sample)
    return Verify(laid.source, target.store, journal, progress(), options, objects=target.objects)


def _sample(part: str | None, seed: int | None) -> Sample | None:
    """The sample that was asked for; without a seed one is drawn and told, so that the same rows can be asked again."""
    if part is None:
        if seed is not None:
            raise SettingsError("--seed goes with --sample")
        return None
    found = re.fullmatch(r"(?P<share>\d+(?:\.\d+)?) ?%|(?P<rows>[1-9]\d*)(?: rows)?", part.strip())
    share = Fraction(found["share"]) / 100 if found and found["share"] else None
    if found is None or (share is not None and not 0 < share <= 1):
        raise SettingsError(
            f"--sample {part}: write a share such as 1% or 0.5%, or a number such as '1000 rows'"
        )
    drawn = secrets.randbelow(1_000_000) if seed is None else seed
    if seed is None:
        click.echo(f"the sample's seed is {drawn}; --seed {drawn} looks at the same rows again", err=True)
    return Sample(drawn, share, None if share is not None else int(found["rows"]))
