"""What two revisions of a mapping cannot have at once, as faults of their files."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from migrator.mapping.check.values import Design, is_one_row, keys_may_meet
from migrator.mapping.difference.difference import (
    Difference,
    Revision,
    TableDifference,
    difference,
)
from migrator.mapping.difference.meaning import BASE_KEY, ROW_KEY, TABLE, meanings
from migrator.mapping.language.document import Document, Path
from migrator.mapping.language.plan import entities_of
from migrator.mapping.model.mapping import Entity
from migrator.runtime.errors import Fault


class Compared(Struct, frozen=True):
    """Two revisions, and the document that the new one stands in."""

    old: Revision
    new: Revision
    document: Document

    def difference(self) -> Difference:
        return difference(self.old, self.new)


def refusals(compared: Compared, found: Difference) -> list[Fault]:
    """Why writers of both revisions cannot be at work on one table; warnings where only a source, or a person, can tell."""
    faults = [*_of_table(compared, found), *_of_rows(compared, found), *_of_keys(compared, found)]
    return sorted(dict.fromkeys(faults), key=lambda fault: (fault.warning, fault.line, fault.where))


# ── the table, and what names rows ──

_NEVER = {
    "name": "another table needs another job: keep the name, or start with a new job",
    "key": "the key of a table cannot be altered; start again with another table",
    "type attribute": "items of both revisions could not be distinguished from migrator's own; keep its name",
    "own attributes": "each revision would overwrite the other's metadata of an item; keep their names",
}
_LOCAL = (
    "a local index can only be created with its table; create a global one, or start again with another table"
)
_REPLACE = "neither the key nor the projection of an index can be altered; give the new index another name"


def _of_table(compared: Compared, found: Difference) -> Iterator[Fault]:
    for part in found.table:
        before, after = part.before or "not there", part.after or "not there"
        what = f"{part.part} is {before} in the old revision and {after} in the new one"
        at = _table_path(part)
        if part.way == "never":
            why = _LOCAL if part.index else _NEVER[part.part]
            yield compared.document.fault(at, f"{what}: {why}", warning=part.part == "name")
        elif part.way == "replace":
            yield compared.document.fault(at, f"{what}: {_REPLACE}")


_WORDS = {"type attribute": "type", "own attributes": "own"}


def _table_path(part: TableDifference) -> Path:
    return ("table", "indexes", part.index) if part.index else ("table", _WORDS.get(part.part, part.part))


def _of_rows(compared: Compared, found: Difference) -> Iterator[Fault]:
    for entity in found.entities:
        at = ("entities", entity.written)
        for part in entity.rows:
            if part.name == ROW_KEY:
                what = f"its rows are identified by {part.before} in the old revision and by {part.after} in the new one"
                yield compared.document.fault(
                    (*at, "key"), f"{what}: _src would identify other rows; give the entity another name"
                )
            elif part.name == TABLE:
                what = f"its rows are of {part.before} in the old revision and of {part.after} in the new one"
                yield compared.document.fault(
                    (*at, "table"),
                    f"{what}: both must have the same rows while both are in use",
                    warning=True,
                )
        if former := found.renamed.get(entity.name):
            what = f"it has the rows and keys of {former} in the old revision"
            why = f"only `migrator migrate-mapping JOB` gives the items of {former} the new name"
            yield compared.document.fault(at, f"{what}: {why}", warning=True)


# ── keys that both revisions could claim, for different rows ──


def _of_keys(compared: Compared, found: Difference) -> Iterator[Fault]:
    table = compared.new.mapping.table
    planned = bool(compared.old.plans or compared.new.plans)
    for old_entity, old in _of_one_alone(compared.old, compared.new):
        for new_entity, new in _of_one_alone(compared.new, compared.old):
            if not keys_may_meet(old, new, table):
                continue
            if old_entity.name == new_entity.name and is_one_row(old, new, table):
                continue
            if old_entity.name == found.renamed.get(new_entity.name):
                continue
            where: Path = ("entities", new_entity.written, "items", new[1].type, "key")
            other = f"{old_entity.written}.{old[1].type}"
            what = f"its key can be equal to one that {other} has in the old revision, of another row"
            mend = (
                "begin it with a unique word"
                if planned
                else "pass --source, which may prove that they are never equal"
            )
            yield compared.document.fault(where, f"{what}; {mend}", warning=not planned)


def _of_one_alone(revision: Revision, other: Revision) -> Iterator[tuple[Entity, Design]]:
    """Items whose base keys the other revision has not, with their entities."""
    known = meanings(other.mapping, other.plans)
    here = meanings(revision.mapping, revision.plans)
    plans = {plan.entity.name: plan for plan in revision.plans}
    for entity in entities_of(revision.mapping):
        there = known.get(entity.name)
        keys = set() if there is None else {meaning.parts[BASE_KEY] for meaning in there.types.values()}
        for design in entity.items:
            if here[entity.name].types[design.type].parts[BASE_KEY] not in keys:
                yield entity, (plans.get(entity.name), design)
