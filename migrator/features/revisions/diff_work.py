"""`migrator mapping diff`: two revisions of a mapping compared by meaning, the older from a file or git."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import click
from msgspec import Struct

from migrator.cli.command_line import print_json
from migrator.cli.cost import write_limit
from migrator.cli.inert import plain
from migrator.cli.page import about, hours_text, money
from migrator.mapping.check.check import Checked
from migrator.mapping.difference.difference import (
    ChangedPart,
    EntityDifference,
    MappingDifference,
    PlannedRevision,
    TypeDifference,
    difference,
    refusals,
)
from migrator.mapping.difference.meaning import PatternDifference
from migrator.mapping.items.wire import Price
from migrator.mapping.language.parse import ParsedMapping, examine_mapping
from migrator.mapping.model.edges import Rows
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.runtime.errors import CLEAN, DIFFERENT, WRONG_USE, Fault, MappingError, SettingsError, amount
from migrator.runtime.values import asdict, replace
from migrator.settings.job import Job, SourceSettings, TargetSettings, Tuning, is_job, load_job
from migrator.settings.transforms import USUAL_REGION, checked_on, price_of, read_mapping
from migrator.stages.design.sizing import SampleBounds, Sized, Sizing, TypeTotals
from migrator.stages.session import job as job_wiring
from migrator.stages.session.source import SourceWork, open_source, secret_providers


class TypeWork(Struct, frozen=True):
    entity: str
    type: str
    effect: str
    written: int
    taken_away: int
    units: float


class Work(Struct, frozen=True):
    """`rows`: number to read, by entity.
    `hours`: at `units_per_s`, which `limit` sets.
    `usd`: None if no price is known; `source`: its origin.
    `exact`: whether every row was read.
    """

    rows: Mapping[str, int]
    types: Sequence[TypeWork]
    usd: Decimal | None
    source: str
    units_per_s: float
    limit: str
    exact: bool

    @property
    def units(self) -> float:
        return sum(one.units for one in self.types)

    @property
    def hours(self) -> float:
        return self.units / self.units_per_s / 3_600


# ── in which order ──


class Step(Struct, frozen=True):
    """`command`: '' if it is not one of migrator's."""

    what: str
    command: str


def steps_of(found: MappingDifference) -> list[Step]:
    """Steps in an order in which readers never query what does not exist yet."""
    return [] if found.is_empty else list(_steps(found))


def _steps(found: MappingDifference) -> Iterator[Step]:
    if found.renamed:
        names = ", ".join(f"{former} the name {name}" for name, former in found.renamed.items())
        yield Step(f"give the items of {names}, and make all other changes", "migrator migrate-mapping JOB")
        return
    added = [part.index for part in found.table if part.way == "add"]
    removed = [part.index for part in found.table if part.way == "remove"]
    if added:
        yield Step(f"add the index {', '.join(added)}", "migrator table change JOB")
    if any(part.way == "alter" for part in found.table):
        yield Step("set the table's TTL to the new attribute, which DynamoDB allows once an hour", "")
    if found.entities or found.schema.needs_install is not False:
        what = (
            "capture what is read now" if found.schema.needs_install else "make the new revision the newest"
        )
        yield Step(what, "migrator capture install JOB")
    written = dict.fromkeys(
        entity.name for entity in found.entities if any(one.effect != "gone" for one in entity.types)
    )
    if written:
        names = " ".join(f"--entity {name}" for name in written)
        yield Step(f"write the items of {', '.join(written)} again", f"migrator backfill JOB {names}")
    gone = [entity.name for entity in found.entities if entity.effect == "gone"]
    if gone:
        what = f"delete the items of {', '.join(gone)}, while no relay and no strict service is running"
        yield Step(what, f"migrator clean JOB --all-items {' '.join(f'--entity {name}' for name in gone)}")
    if found.entities:
        what = "queue differences and items that rows no longer make for the relay; then prove it"
        yield Step(what, "migrator verify JOB --repair")
    changed = [one.name for one in found.patterns if one.answer_changes]
    if changed:
        yield Step(f"gather evidence again for {', '.join(changed)}", "migrator shadow replay JOB")
    if removed:
        yield Step(
            f"remove the index {', '.join(removed)}, which no pattern uses any longer",
            "migrator table change JOB",
        )


_MILLION = 1_000_000


SizedEntity: TypeAlias = Sequence[Sized | None]
"""An entity's items by the old and the new revision; None if that revision does not have the entity."""


def work_of(
    found: MappingDifference,
    measured: Mapping[str, SizedEntity],
    price: Price | None,
    limit: tuple[float, str],
    *,
    tries_inserts: bool,
) -> Work:
    """`measured`: by name of the changed entities.
    `limit`: the table's write units per second, and their limiting factor.
    `tries_inserts`: also of existing items.
    """
    types = [
        _of_type(
            entity.name,
            one,
            *(_totals(sized, one.type) for sized in measured[entity.name]),
            tries_inserts=tries_inserts,
        )
        for entity in found.entities
        for one in entity.types
    ]
    units = Decimal(str(sum(one.units for one in types)))
    sized = [one for pair in measured.values() for one in pair if one is not None]
    return Work(
        rows={name: _rows(pair, name) for name, pair in measured.items()},
        types=types,
        usd=None if price is None else price.write * units / _MILLION,
        source="" if price is None else f"{price.region}, {price.source}",
        units_per_s=limit[0],
        limit=limit[1],
        exact=all(one.exact for one in sized),
    )


def _rows(pair: SizedEntity, entity: str) -> int:
    old, new = pair
    sized = new or old
    assert sized is not None
    return sized.rows[entity]


def _totals(sized: Sized | None, type_: str) -> TypeTotals:
    return TypeTotals("") if sized is None else sized.types.get(type_, TypeTotals(""))


def _of_type(
    entity: str, one: TypeDifference, old: TypeTotals, new: TypeTotals, *, tries_inserts: bool
) -> TypeWork:
    went = one.effect in ("gone", "moved")
    if one.effect == "changed":
        units, taken_away = (
            _rewritten(one, old, new, tries_inserts=tries_inserts),
            max(0.0, old.items - new.items),
        )
    else:
        units, taken_away = (_all(old) if went else 0.0) + _all(new), old.items if went else 0.0
    return TypeWork(entity, one.type, one.effect, round(new.items), round(taken_away), units)


def _all(totals: TypeTotals) -> float:
    """Units of putting each item, or its tombstone: the units of the larger version.

    Source: AWS Developer Guide, "DynamoDB capacity unit consumption for write operations", and "… global
    secondary indexes".
    """
    return totals.table_units + sum(totals.index_units.values())


def _rewritten(one: TypeDifference, old: TypeTotals, new: TypeTotals, *, tries_inserts: bool) -> float:
    """An item takes the units of its larger version; an entry with a changed key is deleted and put: both.

    While a relay runs, a backfill first tries an insert, which takes the existing item's units.
    Source: AWS Developer Guide, "DynamoDB capacity unit consumption for write operations" (conditional writes
    that fail).
    """
    there = min(1.0, new.items / old.items) if old.items and tries_inserts else 0.0
    units = max(old.table_units, new.table_units) + old.table_units * there
    for index in {*old.index_units, *new.index_units}:
        before, after = (totals.index_units.get(index, 0.0) for totals in (old, new))
        units += before + after if index in one.entries else max(before, after)
    return units


_GIT = "git:"
_GIT_S = 30.0


Side: TypeAlias = tuple[Checked, Rows]
"""A revision, checked on the source, which has its rows."""


def diff(old: str, new: Path, source: str | None, rows_exact: int, region: str | None, as_json: bool) -> int:
    asked = _job_of(source, new)
    file = _mapping_file(new)
    parsed = [old_mapping(old, file), read_mapping(file)]
    if faults := [fault for one in parsed for fault in one.faults]:
        raise MappingError(faults)
    with ExitStack() as until:
        sides = [] if asked is None else [_side(until, one, asked) for one in parsed]
        planned = [PlannedRevision(checked.mapping, checked.plans) for checked, _ in sides]
        before, after = planned or [PlannedRevision(one.mapping) for one in parsed]
        found = difference(before, after)
        refused = refusals(before, after, found, parsed[1].document)
        is_refused = any(not fault.warning for fault in refused)
        work = None
        if asked is not None and found.entities and not is_refused:
            work = measured_work(asked, sides, found, rows_exact, region, tries_inserts=True)
    _print(found, refused, work, as_json=as_json)
    return WRONG_USE if is_refused else CLEAN if found.is_empty else DIFFERENT


def _print(found: MappingDifference, refused: Sequence[Fault], work: Work | None, *, as_json: bool) -> None:
    # A refused change has no steps.
    steps = [] if any(not fault.warning for fault in refused) else steps_of(found)
    if as_json:
        print_json(difference_data(found, refused, work, steps))
    else:
        click.echo("\n".join(map(plain, _lines(found, work, steps))))
        for fault in refused:
            click.echo(str(fault), err=True)
        click.echo(verdict_of(found, refused))


# ── the two revisions ──


def _mapping_file(path: Path) -> Path:
    return load_job(path, os.environ, asks_source=False).mapping if is_job(path) else path


def old_mapping(old: str, new: Path) -> ParsedMapping:
    if not old.startswith(_GIT):
        return read_mapping(_mapping_file(Path(old)))
    revision, _, path = old.removeprefix(_GIT).partition(":")
    name = f"{path or new}@{revision.replace('/', ':')}"
    return examine_mapping(_text_of(new.parent, revision, path or f"./{new.name}"), name)


def _text_of(folder: Path, revision: str, path: str) -> str:
    named = f"{_GIT}{revision}:{path}"
    if not revision or revision.startswith("-"):
        raise SettingsError(
            f"{named}: name a revision of git's, such as git:HEAD~1 or git:main:mappings/shop.yaml"
        )
    command = ["git", "-C", str(folder), "cat-file", "blob", f"{revision}:{path}"]
    try:
        ended = subprocess.run(
            command, capture_output=True, timeout=_GIT_S, check=False, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        raise SettingsError(f"{named}: git is not installed; name a file instead") from None
    except subprocess.TimeoutExpired:
        raise SettingsError(f"{named}: git timed out after {_GIT_S:.0f} s; pass a file instead") from None
    if ended.returncode:
        why = ended.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
        raise SettingsError(
            f"{named}: git has no such file ({why}); a path is written from the root of the repository"
        )
    try:
        return ended.stdout.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise SettingsError(f"{named}: not UTF-8 text, so not a mapping") from None


def _job_of(source: str | None, new: Path) -> Job | None:
    if source is None:
        return None
    if (path := Path(source)).suffix in (".yaml", ".yml") and path.is_file():
        return job_wiring.read_job(path)
    settings = SourceSettings.model_construct(url=source)
    return Job("mapping diff", new, new, settings, TargetSettings(), Tuning())


def _side(until: ExitStack, parsed: ParsedMapping, job: Job) -> Side:
    work = SourceWork(secret_providers=secret_providers(job.path.parent, job.target))
    source = until.enter_context(open_source(job.source, parsed, work))
    return checked_on(source, parsed), source


# ── cost ──


def measured_work(
    job: Job,
    sides: Sequence[Side],
    found: MappingDifference,
    rows_exact: int,
    region: str | None,
    *,
    tries_inserts: bool,
) -> Work:
    """`tries_inserts`: of all of a row's items, as `backfill` does while a relay runs."""
    bounds = SampleBounds(rows_exact, min(rows_exact, SampleBounds.sampled))
    measured: Mapping[str, SizedEntity] = {
        entity.name: [_sized(side, entity.name, bounds) for side in sides] for entity in found.entities
    }
    price = price_of(region or job_wiring.region_of(job) or USUAL_REGION, job.target.options.table_class)
    return work_of(found, measured, price, write_limit(job), tries_inserts=tries_inserts)


def _sized(side: Side, entity: str, bounds: SampleBounds) -> Sized | None:
    checked, source = side
    compiled = next((one for one in checked.entities if one.name == entity), None)
    if compiled is None:
        return None
    # Patterns are left out: they send no requests here.
    mapping: MappingModel = replace(compiled.mapping, patterns={})
    return Sizing(source, mapping, [compiled], bounds, time.time()).sized()


# ── printing ──


_EFFECTS = {
    "new": "new",
    "gone": "gone, its items are removed",
    "moved": "moved to other base keys",
    "changed": "changed",
}
_WAYS = {
    "add": "an index to add",
    "remove": "an index to remove",
    "replace": "cannot be altered",
    "alter": "to be altered",
    "never": "cannot be altered",
}


_ORDER = "In this order; `migrator migrate-mapping JOB` does what these do"


def difference_data(
    found: MappingDifference, faults: Sequence[Fault], work: Work | None, steps: Sequence[Step]
) -> dict[str, Any]:
    data = {"equal": found.is_empty, **asdict(found)}
    # A warning names them.
    del data["renamed"]
    data["schema"] |= {"needs_install": found.schema.needs_install}
    data["work"] = None if work is None else _work_data(work)
    return data | {"steps": [asdict(step) for step in steps], "faults": [asdict(fault) for fault in faults]}


def _work_data(work: Work) -> dict[str, Any]:
    figures = {
        "units": round(work.units),
        "hours": work.hours,
        "usd": None if work.usd is None else float(work.usd),
    }
    return asdict(work) | figures | {"units_per_s": work.units_per_s}


def verdict_of(found: MappingDifference, refused: Sequence[Fault]) -> str:
    if faults := [fault for fault in refused if not fault.warning]:
        return f"refused: {amount(len(faults), 'fault')}"
    if found.is_empty:
        return "the same"
    return (
        f"different: {len(found.entities):,} of the entities, {len(found.patterns):,} of the access patterns"
    )


def _lines(found: MappingDifference, work: Work | None, steps: Sequence[Step]) -> Iterator[str]:
    if found.is_empty:
        yield "both mean the same: the same items, the same patterns"
        return
    for title, lines in (
        ("Items", [line for entity in found.entities for line in _entity(entity)]),
        ("Access patterns", [line for one in found.patterns for line in _pattern(one)]),
        ("Columns", list(_schema(found))),
        (
            "Table",
            [f"  {one.part}: {_arrow(one.before, one.after)}; {_WAYS[one.way]}" for one in found.table],
        ),
        ("To be written again", [] if work is None else list(work_lines(work))),
        (_ORDER, [_step(number, step) for number, step in enumerate(steps, 1)]),
    ):
        if lines:
            yield title
            yield from lines


def _entity(entity: EntityDifference) -> Iterator[str]:
    yield f"  {entity.name}: {entity.effect}"
    for part in entity.rows:
        yield f"    {_part(part)}"
    for one in entity.types:
        yield f"    {one.type}: {_effect(one)}"
        yield from (f"      {_part(part)}" for part in one.parts)


def _effect(one: TypeDifference) -> str:
    return (
        f"{_EFFECTS[one.effect]}; its condition changes, so items come and go"
        if one.some
        else _EFFECTS[one.effect]
    )


def _part(part: ChangedPart) -> str:
    return f"{part.name}: {_arrow(part.before, part.after)}"


def _arrow(before: str, after: str) -> str:
    if not before:
        return f"new, {after}"
    return f"{before} → {after}" if after else f"gone, it was {before}"


def _pattern(one: PatternDifference) -> Iterator[str]:
    says = [f"{', '.join(one.parts)} changed"] if one.parts else []
    says += [one.effect] if one.effect in ("new", "gone") else []
    says += [f"LOSES ITS ANSWER: it no longer reaches {', '.join(one.loses)}"] if one.loses else []
    says += (
        ["its answer can change, so evidence starts again"]
        if one.answer_changes and one.effect != "new"
        else []
    )
    lost = ", ".join(one.old_loses)
    says += [f"services of the old revision no longer find {lost} where they read"] if lost else []
    yield f"  {one.name}: {'; '.join(says)}"


def _schema(found: MappingDifference) -> Iterator[str]:
    schema = found.schema
    for verb, columns in (("reads", schema.columns), ("no longer reads", schema.dropped)):
        for entity, names in columns.items():
            yield f"  {entity} {verb} {', '.join(names)}"
    for one in schema.captured or ():
        words = {
            "new": "is captured now",
            "gone": "is no longer captured",
            "changed": "is captured otherwise",
        }
        came = f"; new: {', '.join(one.columns)}" if one.columns else ""
        went = f"; gone: {', '.join(one.dropped)}" if one.dropped else ""
        yield f"  table {one.table} {words[one.effect]}{came}{went}"
    if schema.needs_install is None:
        yield "  pass --source to see if capture must be installed again"


def work_lines(work: Work) -> Iterator[str]:
    for one in work.types:
        yield f"  {_type_work(work, one)}"
    rows = sum(work.rows.values())
    price = "at an unknown price" if work.usd is None else f"{money(work.usd)} ({work.source})"
    time = (
        f"{hours_text(work.hours)} at least, with {work.units_per_s:,.0f} write units a second ({work.limit})"
    )
    yield f"  together {amount(rows, 'row')} read, {about(work.exact)}{work.units:,.0f} write units, {price}; {time}"


def _type_work(work: Work, one: TypeWork) -> str:
    written = f"{about(work.exact)}{amount(one.written, 'item')} written"
    away = f", {one.taken_away:,} removed" if one.taken_away else ""
    return f"{one.entity}.{one.type}: {written}{away}, {one.units:,.0f} write units"


def _step(number: int, step: Step) -> str:
    return f"  {number}. {step.what}{f': {step.command}' if step.command else ''}"
