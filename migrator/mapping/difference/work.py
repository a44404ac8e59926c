"""What a new revision of a mapping takes: rows that are read, items that are written; and in which order it is done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from msgspec import Struct

from migrator.mapping.difference.difference import Difference


class TypeWork(Struct, frozen=True):
    """Items of one type that are written, and those that are taken away; `units`: write units of the table and of all
    indexes."""

    entity: str
    type: str
    effect: str
    written: int
    taken_away: int
    units: float


class Work(Struct, frozen=True):
    """`rows`: by entity those that are read. `hours`: by the `units_per_s` that `limit` allows. `usd`: None where no price
    is known; `source`: where it is from. `exact`: whether every row was read."""

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
    """`command`: '' where it is none of ours."""

    what: str
    command: str


def steps_of(found: Difference) -> list[Step]:
    """What to do so that no reader asks for what is not there yet; by the file of the new revision."""
    return [] if found.is_empty else list(_steps(found))


def _steps(found: Difference) -> Iterator[Step]:
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
        yield Step(f"write the items of {', '.join(written)} anew", f"migrator backfill JOB {names}")
    gone = [entity.name for entity in found.entities if entity.effect == "gone"]
    if gone:
        what = f"delete the items of {', '.join(gone)}, while no relay and no strict service is at work"
        yield Step(what, f"migrator clean JOB --all-items {' '.join(f'--entity {name}' for name in gone)}")
    if found.entities:
        what = "mark what differs, and items that their rows make no more, for the relay; then prove it"
        yield Step(what, "migrator verify JOB --repair")
    changed = [one.name for one in found.patterns if one.answer_changes]
    if changed:
        yield Step(f"gather evidence anew for {', '.join(changed)}", "migrator shadow replay JOB")
    if removed:
        yield Step(
            f"remove the index {', '.join(removed)}, which no pattern asks any more",
            "migrator table change JOB",
        )
