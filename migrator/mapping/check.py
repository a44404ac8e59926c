"""Everything that is wrong, or risky, in a mapping laid over a real schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Mapping as Dict
from dataclasses import dataclass

from migrator.errors import Fault, MappingError
from migrator.facts import EntityPlan, SchemaFacts
from migrator.mapping.atomic import atomic_faults
from migrator.mapping.check_collations import collation_warnings
from migrator.mapping.check_keys import key_faults
from migrator.mapping.check_patterns import pattern_faults
from migrator.mapping.check_returns import return_faults
from migrator.mapping.check_table import table_faults
from migrator.mapping.check_types import refused, row_key_fault, too_precise
from migrator.mapping.check_values import value_faults
from migrator.mapping.check_version import version_faults
from migrator.mapping.document import Document, Path, did_you_mean
from migrator.mapping.items import CompiledEntity, compile_entity, kept_columns
from migrator.mapping.parse import ParsedMapping
from migrator.mapping.plan import plan_entity
from migrator.mapping.rows import Transform
from migrator.mapping.tenants import entities_of
from migrator.mapping.uniqueness import column_of, key_doubt, kind_of, meeting_items, unproved_items
from migrator.model import Mapping, TableDesign


@dataclass(frozen=True)
class Checked:
    """A mapping that fits its source: entities compiled, in the file's order.

    `unproved`: per entity, the item types whose keys two rows might share; they are claimed before they are written.
    `direct`: entities that the service writes past SQL; they are not among `entities`.
    """

    mapping: Mapping
    entities: tuple[CompiledEntity, ...]
    unproved: dict[str, frozenset[str]]
    warnings: tuple[Fault, ...]
    direct: tuple[CompiledEntity, ...] = ()

    @property
    def read(self) -> tuple[CompiledEntity, ...]:
        """All entities, also those that nobody of ours may write: for who only reads."""
        return (*self.entities, *self.direct)


def check_mapping(
    parsed: ParsedMapping, facts: SchemaFacts, transforms: Dict[str, Transform] | None = None
) -> Checked:
    """The mapping compiled for the source. `transforms`: the functions that entities name, by module:function.

    Raises: MappingError with every fault of form and fit (warnings are in the result, or beside the faults).
    """
    plans, faults = _plans(parsed, facts)
    found = [*check_form(parsed, plans), *faults]
    for plan in plans:
        found += _EntityCheck(parsed.mapping, plan, parsed.document).faults()
    if all(fault.warning for fault in found):
        found += collation_warnings(parsed.mapping, plans, parsed.document)
    unproved = unproved_items(plans, parsed.mapping.table)
    found += _unproved_warnings(parsed, plans, unproved)
    ordered = sorted(dict.fromkeys(found), key=lambda fault: (fault.line, fault.where))
    if any(not fault.warning for fault in ordered):
        raise MappingError(ordered)
    known = transforms or {}
    entities = tuple(
        compile_entity(parsed.mapping, plan, known.get(plan.entity.transform or "")) for plan in plans
    )
    return Checked(parsed.mapping, entities, unproved, tuple(ordered))


def check_form(parsed: ParsedMapping, plans: Sequence[EntityPlan] = ()) -> tuple[Fault, ...]:
    """The faults of form, and of access patterns against the items. `plans`: what is known of a source, if there is one."""
    mapping, document = parsed.mapping, parsed.document
    found = [
        *parsed.faults,
        *table_faults(mapping, document),
        *pattern_faults(mapping, document, plans),
        *atomic_faults(mapping, document),
        *return_faults(mapping, document, plans),
    ]
    return tuple(sorted(dict.fromkeys(found), key=lambda fault: (fault.line, fault.where)))


def _plans(parsed: ParsedMapping, facts: SchemaFacts) -> tuple[list[EntityPlan], list[Fault]]:
    plans: list[EntityPlan] = []
    faults = [
        parsed.document.fault(
            ("source", "schemas", number),
            f"the source has no schema '{name}'{did_you_mean(name, facts.schemas)}",
        )
        for number, name in enumerate(parsed.mapping.schemas)
        if name not in facts.schemas
    ]
    if faults:
        return [], faults
    for entity in entities_of(parsed.mapping):
        plan, found = plan_entity(parsed.mapping, entity, facts, parsed.document)
        faults += found
        if plan is not None:
            plans.append(plan)
    return plans, faults


def _unproved_warnings(
    parsed: ParsedMapping, plans: list[EntityPlan], unproved: dict[str, frozenset[str]]
) -> Iterator[Fault]:
    """A warning for each item whose key is not proved to be its own: because of another item, or of another row."""
    named: set[tuple[str, str]] = set()
    for (plan, item), (other_plan, other) in meeting_items(plans, parsed.mapping.table):
        whom = f"{other_plan.entity.written}.{other.type}"
        what = f"its key can be equal to that of {whom}; begin one of the two with a word of its own"
        yield parsed.document.fault(_key_at(plan.entity.written, item.type), what, warning=True)
        named |= {(plan.entity.name, item.type), (other_plan.entity.name, other.type)}
    for name, types in unproved.items():
        for type_ in sorted(types):
            if (name, type_) not in named:
                what = "nothing proves that no other row makes this key; backfill claims each key and finds the second row"
                yield parsed.document.fault(_key_at(name.partition("@")[0], type_), what, warning=True)


def _key_at(entity: str, type_: str) -> Path:
    return ("entities", entity, "items", type_, "key")


class _EntityCheck:
    """Checks one planned entity against the rules of the mapping language."""

    def __init__(self, mapping: Mapping, plan: EntityPlan, document: Document) -> None:
        self.mapping = mapping
        self.plan = plan
        self.document = document
        self.at: Path = ("entities", plan.entity.written)

    def faults(self) -> Iterator[Fault]:
        yield from value_faults(self.mapping, self.plan, self.document)
        yield from self._kept()
        yield from key_faults(self.mapping, self.plan, self.document)
        yield from self._expiries()
        yield from self._unread_joins()
        yield from version_faults(self.plan, self.document)
        for column in self.plan.key:
            if what := row_key_fault(column):
                yield self._fault((*self.at, "key"), f"{what}; name other columns in key:")
        if why := key_doubt(self.plan):
            names = ", ".join(column.name for column in self.plan.key)
            what = f"nothing proves that {names} names one row: {why}"
            ends = "two rows of one key end a backfill, which looks for them before it begins"
            yield self._fault((*self.at, "key"), f"{what}; {ends}", warning=True)

    def _fault(self, at: Path, what: str, *, warning: bool = False) -> Fault:
        return self.document.fault(at, what, warning=warning)

    def _unread_joins(self) -> Iterator[Fault]:
        plan = self.plan
        lists = [
            ((*self.at, "collect", one.collection.alias), one.joins, one.slots) for one in plan.collections
        ]
        for at, joins, slots in ((self.at, plan.joins, plan.slots), *lists):
            read = {slot.alias for slot in slots} | {join.parent for join in joins}
            for join in joins:
                if join.alias not in read:
                    what = "no item reads anything of this join, and each page pays for it; take it out"
                    yield self._fault((*at, "join", join.alias), what, warning=True)

    def _kept(self) -> Iterator[Fault]:
        table = self.mapping.table
        for item in self.plan.entity.items:
            at = (*self.at, "items", item.type, "keep")
            written = {**self.plan.entity.attributes, **item.attributes}
            taken = _taken_names(table) | {
                attribute.name
                for entry in item.entries
                for index in table.indexes
                if index.name == entry.index
                for attribute in index.attributes
            }
            for name in kept_columns(self.plan, item):
                mend = f"leave it out with keep: {{except: [{name}]}}"
                if name in taken and name not in item.attributes:
                    what = f"the column '{name}' has the name of an attribute that migrator writes"
                    yield self._fault(at, f"{what}; {mend}, or rename the attribute in table")
                column = column_of(name, self.plan)
                if column is not None and name not in written:
                    if column.kind.name == "unknown":
                        yield self._fault(at, refused(name, column, kept=True))
                    elif warning := too_precise(name, column.kind, None):
                        yield self._fault(at, warning, warning=True)

    def _expiries(self) -> Iterator[Fault]:
        for item in self.plan.entity.items:
            if item.expiry is None:
                continue
            kind = kind_of(item.expiry.path, self.plan)
            if kind is not None and kind.name not in ("timestamp", "date", "integer"):
                at = (*self.at, "items", item.type, "ttl")
                yield self._fault(
                    at,
                    f"'{item.expiry.path}' is {kind.name}; a TTL comes from a timestamp, a date or epoch seconds",
                )


def _taken_names(table: TableDesign) -> set[str]:
    names = {*table.own_attributes, table.type_attribute, *(attribute.name for attribute in table.key)}
    return names | ({table.ttl} if table.ttl else set())
