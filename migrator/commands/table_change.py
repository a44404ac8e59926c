"""`migrator table change`: global indexes added to a table that is there, and removed, so that it fits its mapping."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import click
from msgspec import Struct

from migrator.cli.command_line import print_json
from migrator.cli.cutover_text import instance_label
from migrator.cli.options import need_yes, print_folded, refuse_strange, stop_on_signals
from migrator.cli.runs import known_revision
from migrator.commands.table_work import edits_of
from migrator.mapping.language.parse import ParsedMapping
from migrator.mapping.model.evidence import ROUTES, PatternPhase
from migrator.mapping.model.instances import Instance, Newest
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.mapping import Pattern
from migrator.runtime.errors import CLEAN, DIFFERENT, SettingsError, TargetError
from migrator.settings.definition import IndexChanges, addition, definition, removal
from migrator.settings.job import Job
from migrator.settings.transforms import sound_mapping
from migrator.stages.session.job import Target, open_target, read_job
from migrator.stages.session.session import JobSession


def refuse_readers(
    names: Sequence[str],
    revision: str,
    newest: Newest | None,
    instances: Sequence[Instance],
    phases: Mapping[str, PatternPhase],
    patterns: Mapping[str, Pattern],
    label: Callable[[Instance], str],
) -> None:
    """Returns where nothing known asks the indexes of these names.

    `revision`: of the mapping in hand, which has them no more; `instances`: that said no goodbye; `phases`: on record;
    `patterns`: of the mapping in hand. Raises: SettingsError that names everything in the way, and what to do of each.
    """
    reasons = [
        *_older_file(revision, newest),
        *_patterns(phases, patterns, names),
        *_services(revision, instances, label),
    ]
    if reasons:
        indexes = f"index {', '.join(names)}"
        raise SettingsError(
            "\n".join([f"{indexes} cannot be removed yet:", *(f"  {reason}" for reason in reasons)])
        )


def _older_file(revision: str, newest: Newest | None) -> Iterator[str]:
    if newest is not None and newest.revision.mapping != revision:
        what = f"the job works by mapping {newest.revision.mapping}, and this file is {revision}"
        yield f"{what}; make it the newest first: `migrator capture install JOB` (or `migrator recover JOB older-mapping`)"


def _patterns(
    phases: Mapping[str, PatternPhase], patterns: Mapping[str, Pattern], names: Collection[str]
) -> Iterator[str]:
    for name, phase in sorted(phases.items()):
        route = ROUTES[phase.state.phase]
        if "table" not in (route.answers, route.in_share):
            continue
        if name not in patterns:
            what = (
                f"pattern {name} is in phase {phase.state.phase}, and the mapping does not have it any more"
            )
            yield f"{what}, so which index it asks is not known; move it back first: `migrator cutover rollback JOB {name}`"
        elif patterns[name].index in names:
            yield f"pattern {name} is in phase {phase.state.phase} and asks index {patterns[name].index}"


def _services(
    revision: str, instances: Sequence[Instance], label: Callable[[Instance], str]
) -> Iterator[str]:
    for instance in instances:
        if instance.reads and instance.revision != revision:
            what = f"{label(instance)} reads by mapping {instance.revision}, whose patterns may ask it"
            yield f"{what}; start it anew by this file; one that is gone without a goodbye counts for a day"


def change(job: Path, form: str | None, dry_run: bool, yes: bool, as_json: bool) -> int:
    """The exit code of `migrator table change`."""
    with JobSession(job) as session, stop_on_signals(session.stop):
        read = read_job(job, asks_source=False)
        parsed = sound_mapping(read.mapping)
        target = open_target(read, parsed.mapping.table, session.stop.is_set)
        planned = target.admin.index_changes(target.design)
        if form is not None:
            return _print_edits(form, target, read, planned, as_json=as_json)
        if dry_run:
            return _print_requests(target, read, planned, as_json=as_json)
        done = _Change(session, parsed, target).run(planned, read, yes=yes)
    return done.told(target.design.name, as_json=as_json)


class _Done(Struct, frozen=True):
    added: tuple[str, ...]
    removed: tuple[str, ...]
    left: tuple[str, ...]
    cannot: dict[str, str]

    def told(self, table: str, *, as_json: bool) -> int:
        code = DIFFERENT if self.left or self.cannot else CLEAN
        if as_json:
            print_json(
                {
                    "table": table,
                    "added": list(self.added),
                    "removed": list(self.removed),
                    "left": list(self.left),
                    "cannot": _reasons(self.cannot),
                }
            )
            return code
        for name, why in self.cannot.items():
            print_folded(f"index {name}: {why}")
        for name in self.left:
            print_folded(f"index {name} is in the table and not in the mapping; --yes removes it")
        changed = f"{len(self.added)} index(es) added, {len(self.removed)} removed"
        print_folded(
            f"table {table}: {changed if self.added or self.removed else 'its indexes are as they were'}"
        )
        return code


class _Change(Struct, frozen=True):
    """One run; one that was stopped goes on by being run again."""

    session: JobSession
    parsed: ParsedMapping
    target: Target

    def run(self, planned: IndexChanges, job: Job, *, yes: bool) -> _Done:
        admin, design = self.target.admin, self.target.design
        if planned.remove:
            self._refuse_readers(planned.remove)
        admin.settle(design, _tell)
        for index in planned.add:
            _tell(f"adding index {index.name}")
            admin.add_index(design, index, job.target.options, _tell)
        removed = planned.remove if planned.remove and may_remove(planned.remove, yes=yes) else ()
        for name in removed:
            # Somebody may have come while the others were filled.
            self._refuse_readers([name])
            _tell(f"removing index {name}")
            admin.remove_index(design, name, _tell)
        left = tuple(name for name in planned.remove if name not in removed)
        return _Done(tuple(index.name for index in planned.add), removed, left, planned.cannot)

    def _refuse_readers(self, names: Sequence[str]) -> None:
        mapping = self.parsed.mapping
        revision = known_revision(self.session.job) or mapping.revision
        refuse_asked(self.session, mapping, revision, names)


def refuse_asked(session: JobSession, mapping: MappingModel, revision: str, names: Sequence[str]) -> None:
    """Returns where nothing known asks the indexes any more. Raises: TargetError; as refuse_readers does."""
    if away := refuse_strange(session, older=True, warns=False, begins=True):
        raise TargetError(f"no index is removed where the table cannot say which journal is its own: {away}")
    refuse_readers(
        names,
        revision,
        session.newest(),
        session.service_registry().known,
        session.phases.all(),
        mapping.patterns,
        instance_label,
    )


def may_remove(names: tuple[str, ...], *, yes: bool) -> bool:
    """Raises: RefusedError where the person who is asked says no."""
    if not yes and sys.stdin.isatty():
        need_yes(f"Remove index {', '.join(names)}? What is in it is gone; the table's items stay.")
        return True
    return yes


def _reasons(cannot: dict[str, str]) -> list[dict[str, str]]:
    return [{"index": name, "why": why} for name, why in cannot.items()]


def _tell(what: str) -> None:
    click.echo(what, err=True)


# ── what is only printed ──


def _print_edits(form: str, target: Target, job: Job, planned: IndexChanges, *, as_json: bool) -> int:
    names = [*(index.name for index in planned.add), *planned.remove, *planned.cannot]
    designed = definition(target.design, job.target.options)
    edits = list(edits_of(form, [f"index {name}" for name in names], designed))
    if as_json:
        print_json({"table": target.design.name, "edits": edits, "cannot": _reasons(planned.cannot)})
    else:
        for line in [*edits, *(f"# index {name}: {why}" for name, why in planned.cannot.items())]:
            print_folded(line)
    return DIFFERENT if names else CLEAN


def _print_requests(target: Target, job: Job, planned: IndexChanges, *, as_json: bool) -> int:
    design = target.design
    requests = [addition(design, index, job.target.options) for index in planned.add]
    requests += [removal(design, name) for name in planned.remove]
    if as_json:
        print_json(
            {
                "table": design.name,
                "requests": [{"operation": "UpdateTable", "request": one} for one in requests],
                "cannot": _reasons(planned.cannot),
            }
        )
    else:
        for one in requests:
            click.echo(f"UpdateTable: {json.dumps(one)}")
        for name, why in planned.cannot.items():
            print_folded(f"index {name}: {why}")
        if not requests and not planned.cannot:
            print_folded(f"table {design.name}: nothing to change")
    return DIFFERENT if requests or planned.cannot else CLEAN
