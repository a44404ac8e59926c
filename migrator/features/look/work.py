"""`migrator look`: what is stored in one item collection beside what its rows make now."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any

import click

from migrator.cli.command_line import print_json
from migrator.cli.options import stdout, stop_on_signals
from migrator.commands.query_work import query
from migrator.features.look.look import Look, known_forms, shown
from migrator.features.look.text import look_data, print_look
from migrator.mapping.model.mapping import Mapping
from migrator.mapping.model.report import Example, LookReport
from migrator.mapping.model.table import TableDesign
from migrator.runtime.errors import CLEAN, DIFFERENT, SettingsError
from migrator.settings.job import Job
from migrator.settings.transforms import sound_mapping
from migrator.stages.core.partitions import asked_key
from migrator.stages.design.shown import Showing
from migrator.stages.session.job import design_for, read_job
from migrator.stages.session.session import JobSession
from migrator.stages.verify.scan import direct_items

_PATIENCE_S = 10.0
"""How long a side that does not answer is asked again: a person waits for it."""


@dataclass(frozen=True)
class Masks:
    """What is shown whole: keys, also the parts that may name a person, and values that nothing redacts."""

    whole_keys: bool
    whole_values: bool


@dataclass(frozen=True)
class Sides:
    """Both sides of a job, open to be read."""

    session: JobSession
    masks: Masks

    def report(self, partition: tuple[str, ...], sort: str, index: str | None, limit: int) -> LookReport:
        """One collection, as it may be shown. Raises: SettingsError where there is no such collection."""
        checked, table = self.session.checked, self.session.target.design
        if not partition:
            refuse_no_key(self.session.job, checked.mapping, table, index)
        looked = self._look(limit).look(asked_key(table, index, partition, sort), time.time())
        return shown(looked, self.session.job.name, table, self._showing())

    def examples(self) -> list[Example]:
        """An item of each type, in the mapping's order. Raises: StoppedError or SourceError where a side is away."""
        return self._look(1).examples(self._showing())

    def _look(self, limit: int) -> Look:
        checked, target = self.session.checked, self.session.target
        return Look(
            *(self.session.source, target.store, checked.mapping, target.design, checked.entities),
            direct=direct_items(checked, self.session.job.leave),
            items_at_most=limit,
        )

    def _showing(self) -> Showing:
        checked = self.session.checked
        return Showing(
            checked.mapping,
            [entity.plan for entity in checked.read],
            whole_keys=self.masks.whole_keys or self.masks.whole_values,
            whole_values=self.masks.whole_values,
        )


def refuse_no_key(job: Job, mapping: Mapping, table: TableDesign, index: str | None) -> None:
    """Raises: SettingsError, which says what partition keys look like, or which indexes there are."""
    design = table.asked(index or None)
    if design is None:
        asked_key(table, index, ())
        return
    whole = " ".join(f"--pk {attribute.name.upper()}" for attribute in design.partition)
    command = f"migrator look {job.path} {whole}" + (f" --index {index}" if index else "")
    raise SettingsError(f"a partition key is missing; {known_forms(mapping, table, design)}; write {command}")


@contextmanager
def open_sides(job: Job, masks: Masks, command: str, stop: Event) -> Iterator[Sides]:
    """`stop`: whether to give up waiting for a side. Raises: TargetError where the table is not there, or is another one."""
    patience_s = min(job.tuning.give_up_after_s, _PATIENCE_S)
    patient = replace(job, tuning=job.tuning.model_copy(update={"give_up_after_s": patience_s}))
    with JobSession(patient, command, workers=1, stop=stop) as session:
        _ = session.checked, session.table_id
        yield Sides(session, masks)


def look(job: Path, pattern: str | None, params: tuple[str, ...], explain: bool, **asked: Any) -> int:
    """The exit code of `migrator look`."""
    if pattern is None:
        if params or explain:
            raise click.UsageError("-p and --explain go with --pattern")
        return _look(job, **asked)
    if asked["partition"] or asked["sort"] or asked["index"] or asked["everything"]:
        raise click.UsageError("--pattern goes without --pk, --sk, --index and --all")
    return query(job, pattern, params, explain, asked["as_json"])


def _look(
    job: Path,
    partition: tuple[str, ...],
    sort: str,
    index: str | None,
    limit: int,
    everything: bool,
    whole_keys: bool,
    whole_values: bool,
    as_json: bool,
) -> int:
    read = read_job(job, asks_source=bool(partition))
    masks = Masks(whole_keys, whole_values)
    if not partition:
        # What keys look like is said where no side answers, too.
        mapping = sound_mapping(read.mapping).mapping
        refuse_no_key(read, mapping, design_for(read, mapping.table), index)
    with stop_on_signals() as stop, open_sides(read, masks, "look", stop) as sides:
        report = sides.report(partition, sort, index, limit)
    if as_json:
        print_json(look_data(report))
    else:
        print_look(stdout(), report, everything=everything)
    return CLEAN if report.is_clean else DIFFERENT
