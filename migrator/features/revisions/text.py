"""How two revisions of a mapping differ, as text and as JSON: items, patterns, columns, indexes, the work and its order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from migrator.cli.drawings import about, hours_text, money
from migrator.cli.inert import plain
from migrator.mapping.difference.difference import Difference, EntityDifference, Part, TypeDifference
from migrator.mapping.difference.patterns import PatternDifference
from migrator.mapping.difference.work import Step, TypeWork, Work
from migrator.runtime.errors import Fault

_EFFECTS = {
    "new": "new",
    "gone": "gone, its items are taken away",
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
    found: Difference, faults: Sequence[Fault], work: Work | None, steps: Sequence[Step]
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


def difference_lines(found: Difference, work: Work | None, steps: Sequence[Step]) -> Iterator[str]:
    """For people; what is equal is one line."""
    return (plain(line) for line in _lines(found, work, steps))


def verdict_of(found: Difference, refused: Sequence[Fault]) -> str:
    """The last line."""
    if faults := [fault for fault in refused if not fault.warning]:
        return f"refused: {len(faults):,} fault(s)"
    if found.is_empty:
        return "the same"
    return (
        f"different: {len(found.entities):,} of the entities, {len(found.patterns):,} of the access patterns"
    )


def _lines(found: Difference, work: Work | None, steps: Sequence[Step]) -> Iterator[str]:
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
        ("To be projected anew", [] if work is None else list(work_lines(work))),
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


def _part(part: Part) -> str:
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
        ["its answer can change, so evidence starts anew"]
        if one.answer_changes and one.effect != "new"
        else []
    )
    lost = ", ".join(one.old_loses)
    says += [f"services of the old revision no longer find {lost} where they ask"] if lost else []
    yield f"  {one.name}: {'; '.join(says)}"


def _schema(found: Difference) -> Iterator[str]:
    schema = found.schema
    for verb, columns in (("reads", schema.columns), ("no longer reads", schema.dropped)):
        for entity, names in columns.items():
            yield f"  {entity} {verb} {', '.join(names)}"
    for one in schema.captured or ():
        words = {"new": "is captured now", "gone": "is captured no more", "changed": "is captured otherwise"}
        came = f"; new: {', '.join(one.columns)}" if one.columns else ""
        went = f"; gone: {', '.join(one.dropped)}" if one.dropped else ""
        yield f"  table {one.table} {words[one.effect]}{came}{went}"
    if schema.needs_install is None:
        yield "  whether capture is to be installed again, --source tells"


def work_lines(work: Work) -> Iterator[str]:
    """By item type, and together."""
    for one in work.types:
        yield f"  {_type_work(work, one)}"
    rows = sum(work.rows.values())
    price = "at an unknown price" if work.usd is None else f"{money(work.usd)} ({work.source})"
    time = (
        f"{hours_text(work.hours)} at least, with {work.units_per_s:,.0f} write units a second ({work.limit})"
    )
    yield f"  together {rows:,} row(s) read, {about(work.exact)}{work.units:,.0f} write units, {price}; {time}"


def _type_work(work: Work, one: TypeWork) -> str:
    written = f"{about(work.exact)}{one.written:,} item(s) written"
    away = f", {one.taken_away:,} taken away" if one.taken_away else ""
    return f"{one.entity}.{one.type}: {written}{away}, {one.units:,.0f} write units"


def _step(number: int, step: Step) -> str:
    return f"  {number}. {step.what}{f': {step.command}' if step.command else ''}"
