"""`migrator status --findings`, and how commands begin, resume and end a run of the journal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from migrator.cli import options as cli
from migrator.cli.command_line import print_json
from migrator.cli.cutover_text import instance_label, instances_lines, instances_table
from migrator.cli.text import SHOWN, finding_line
from migrator.mapping.language.parse import ParsedMapping, examine_mapping
from migrator.mapping.model import mapping as mappings
from migrator.mapping.model.instances import ServiceRegistry
from migrator.mapping.model.journal import Finding, Run, RunState
from migrator.mapping.model.results import BackfillResult, VerifyResult
from migrator.runtime import logs
from migrator.runtime.errors import Interrupted, MigratorError, SettingsError, amount
from migrator.runtime.values import asdict
from migrator.settings.job import Hook, Job
from migrator.settings.transforms import load_transforms, sound_mapping
from migrator.stages.cutover.moves import tell
from migrator.stages.session.session import JobSession

# ── How a run ended ──


class RunEnd:
    """Records by `end` how a run ended; log lines carry the run. `hooks`: called for a failure."""

    def __init__(self, end: Callable[[Run, RunState], None], run: Run, hooks: Sequence[Hook] = ()) -> None:
        self.end = end
        self.run = run
        self.hooks = hooks

    def __enter__(self) -> None:
        logs.bind_run(self.run.id)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.end(self.run, "done")
        elif isinstance(error, (Interrupted, KeyboardInterrupt)):
            self.end(self.run, "interrupted")
        elif isinstance(error, MigratorError):
            identity = self.run.identity
            failed = {"run": self.run.id, "kind": identity.kind, "reason": str(error)}
            try:
                self.end(self.run, "failed")
            finally:
                tell(self.hooks, "run_failed", identity.job, **failed)


# ──
# Instances of services, as commands see them: listed, counted where they mark changes, and in the way of
# an uninstall.


def known_revision(job: Job) -> str | None:
    """Revision of the job's mapping; None if it has faults, which other commands report."""
    try:
        return load_transforms(sound_mapping(job.mapping))[0].mapping.revision
    except MigratorError:
        return None


def kept_mapping(session: JobSession, revision: str) -> ParsedMapping:
    text = session.changes.text(revision)
    if text is None:
        what = f"journal: the text of mapping {revision} is missing"
        raise SettingsError(f"{what}. Run `migrator capture install JOB`, then `migrator backfill JOB`")
    # Next to the job's file, so that its transforms' modules are found.
    parsed = examine_mapping(text, older_file(session.job, revision))
    if (now := load_transforms(parsed)[0].mapping.revision) != revision:
        cli.say(
            f"warning: mapping {revision} is {now} by the transforms as they are now: what only they changed is not seen"
        )
    return parsed


def older_file(job: Job, revision: str) -> str:
    return str(job.mapping.with_name(f"{job.mapping.stem}.{revision}{job.mapping.suffix}"))


def print_instances(service_registry: ServiceRegistry, revision: str | None) -> None:
    if service_registry.living:
        cli.stdout().print(instances_table(service_registry, revision))
    for line in instances_lines(service_registry, revision, version("single-table-migrator")):
        cli.print_folded(line)


def refuse_living(service_registry: ServiceRegistry) -> None:
    """Raises: SettingsError, naming them, if live instances have a next write that would fail or leave no mark."""
    if living := service_registry.marking:
        named = "\n".join(f"  {instance_label(instance)}" for instance in living)
        what = f"{amount(len(living), 'service instance')} running, with changes captured by it or by triggers:\n{named}"
        advice = "stop them first; or pass --force: then their writes fail or are missed"
        raise SettingsError(f"{what}\n{advice}")


def print_found(
    findings_of: Callable[[Run, int], Sequence[Finding]],
    result: BackfillResult | VerifyResult,
    mapping: mappings.Mapping,
    *,
    whole_keys: bool,
) -> None:
    findings = findings_of(result.run, SHOWN)
    printed = cli.findings_to_print(findings, mapping, whole_keys=whole_keys)
    for finding in printed:
        cli.print_folded(finding_line(finding))
    if (rest := sum(result.findings.values()) - len(printed)) > 0:
        cli.print_folded(f"… and {rest:,} more: see them with `migrator status JOB --findings --all`")
    cli.tell_masked(printed, findings)


# ── `migrator status --findings`: the findings in the journal of a job ──


def print_findings(job: Path, number: int | None, everything: bool, whole_keys: bool, as_json: bool) -> int:
    with JobSession(job) as session:
        read = session.job
        listed = list(_listed(session, number, None if everything else 100))
    unmasked = [finding for _, findings, _ in listed for finding in findings]
    printed = cli.findings_to_print(unmasked, cli.mapping_of(read), whole_keys=whole_keys)
    cli.tell_masked(printed, unmasked)
    if as_json:
        lists = [{**about, "total": total} for about, _, total in listed]
        all_ = sum(total for _, _, total in listed)
        rows = [asdict(finding) for finding in printed]
        print_json({"job": read.name, "lists": lists, "total": all_, "findings": rows})
        return 0
    for line in printed:
        cli.print_folded(finding_line(line))
    for about, findings, total in listed:
        unlisted = total - len(findings)
        rest = f"; {unlisted:,} more with --all" if unlisted > 0 else ""
        of = "run {run} ({kind}, {state})".format(**about) if about else "live change, open"
        cli.say(f"{of}: {amount(total, 'finding')}{rest}")
    return 0


def _listed(
    session: JobSession, number: int | None, limit: int | None
) -> Iterator[tuple[dict[str, Any], Sequence[Finding], int]]:
    """For the live changes and a run: what they are, up to `limit` findings, and the number of all."""
    journal = session.journal
    run = _run(session, number)
    if number is None and any(other.identity.kind == "relay" for other in journal.runs(session.job.name)):
        opened = session.open_findings
        yield {}, opened.read(limit), sum(opened.counts().values())
    # Findings of a relay in the journal are open.
    if number is not None or run.identity.kind != "relay":
        about = {"run": run.id, "kind": run.identity.kind, "state": run.state}
        yield about, journal.findings(run, limit), sum(journal.finding_counts(run).values())


def _run(session: JobSession, number: int | None) -> Run:
    job, runs = session.job.name, session.runs_as_they_stand()
    if not runs:
        elsewhere = "if something has, MIGRATOR_HOME was another, or the job file stood elsewhere"
        raise SettingsError(f"job {job}: nothing has run yet by this journal; {elsewhere}")
    if number is None:
        return runs[-1]
    for run in runs:
        if run.id == number:
            return run
    raise SettingsError(f"job {job} has no run {number}; its newest is run {runs[-1].id}")
