"""Faults in an entity's values and types, and proofs that its base keys are unique."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeAlias

from msgspec import Struct

from migrator.mapping.items.filters import DIGITS, FILTERS, MOMENT, NUMBERS, FilterSpec, members_of, specs_of
from migrator.mapping.items.rows import keeps_every_value
from migrator.mapping.items.templates import format_width
from migrator.mapping.language.document import Document
from migrator.mapping.language.plan import Reference, references_of
from migrator.mapping.model.facts import Column, EntityPlan, Kind, column_of, kind_of
from migrator.mapping.model.mapping import Filter, ItemDesign, Ref, Template
from migrator.mapping.model.table import NUMBER_DIGITS, TableDesign
from migrator.runtime.errors import Fault

# ── Faults in the use of a column's type: no form in an item, a list in place of text, too many digits ──

NESTED = frozenset({"list", "map", "set"})
_NAME = re.compile(r"[A-Za-z_]\w*")


def refused(path: str, column: Column, *, kept: bool = False) -> str:
    alias, _, name = path.rpartition(".")
    sql = (column.kind.instead or "CAST({column} AS char)").replace("{column}", _quoted(name))
    what = f"'{path}' is of type {column.declared or 'an unknown type'}, which cannot be stored in an item"
    if alias:
        return f"{what}; make a view with {sql} in it, and read that"
    new = f"{name}_text"
    instead = f'write columns: {{{new}: {{sql: "{_escaped(sql)}", type: text}}}} and use {new}'
    without = f", with keep: {{except: [{name}]}}" if kept else ""
    return f"{what}; {instead}{without}"


def _quoted(name: str) -> str:
    return name if _NAME.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def _escaped(sql: str) -> str:
    return sql.replace("\\", "\\\\").replace('"', '\\"')


def too_precise(path: str, kind: Kind, ref: Ref | None) -> str:
    if kind.name != "number" or (kind.precision or 0) <= NUMBER_DIGITS:
        return ""
    if ref is not None and keeps_every_value(ref.filters):
        return ""
    what = f"'{path}' may have {kind.precision} digits, and a row with a number of more than {NUMBER_DIGITS} is refused"
    return f"{what}; {path}|text keeps every digit"


def nested_fault(path: str, kind: Kind, ref: Ref, *, text_wanted: bool) -> str:
    if kind.name not in NESTED:
        return ""
    for used in ref.filters:
        if FILTERS[used.name].of_array and kind.name != "map":
            return ""
        if FILTERS[used.name].nested:
            what = f"'{path}' is a {kind.name} that contains bytes, which JSON cannot represent; use the column as it is"
            return what if _holds_bytes(kind) else ""
        if not FILTERS[used.name].null:
            takes_it = "json takes it" if kind.name == "map" else "json and set take it"
            return f"'{path}' is a {kind.name}; of the filters only {takes_it}, not '{used.name}'"
    return (
        f"'{path}' is a {kind.name}, which cannot be written as text; write {path}|json"
        if text_wanted
        else ""
    )


def _holds_bytes(kind: Kind) -> bool:
    inner = [*([kind.element] if kind.element else []), *(of for _, of in kind.fields)]
    return any(of.name == "binary" or _holds_bytes(of) for of in inner)


def bare_fault(path: str, kind: Kind, doing: str) -> str:
    return f"'{path}' is a {kind.name}; {doing} takes one value" if kind.name in NESTED else ""


def row_key_fault(column: Column) -> str:
    if what := bare_fault(column.name, column.kind, "a row's key"):
        return what
    why = "it cannot be stored" if column.kind.name == "unknown" else column.kind.no_key
    return f"'{column.name}' is of type {column.declared}, which cannot name rows: {why}" if why else ""


# ── Faults in the values of an entity: types, formats and filters that do not fit each other ──


def value_faults(plan: EntityPlan, document: Document) -> Iterator[Fault]:
    references = list(references_of(plan.entity))
    for reference in references:
        kind = kind_of(_whole_path(reference), plan)
        if kind is None:
            continue
        column = column_of(_whole_path(reference), plan)
        if kind.name == "unknown" and column is not None:
            what = refused(_whole_path(reference), column)
        elif reference.ref is not None:
            what = _list_fault(reference, reference.ref, kind) or _ref_fault(reference, reference.ref, kind)
        else:
            what = _bare_list_fault(reference) or bare_fault(reference.path, kind, "a condition or a ttl")
            if not what and kind.name == "binary" and reference.in_text:
                what = f"'{reference.path}' is bytes, which cannot equal a value of a mapping; write a column's name alone"
        if what:
            yield document.fault(reference.at, what)
        elif warning := (
            too_precise(reference.path, kind, reference.ref)
            or _without_text(reference, kind)
            or _with_decimals(reference, kind)
            or _twice_in_map(reference, plan, references)
        ):
            yield document.fault(reference.at, warning, warning=True)


def _with_decimals(reference: Reference, kind: Kind) -> str:
    ref = reference.ref
    if ref is None or ref.format is None or kind.name not in ("number", "float"):
        return ""
    _, decimals = format_width(ref.format)
    if kind.scale is not None and kind.scale <= decimals:
        return ""
    may = "any number of" if kind.scale is None else str(kind.scale)
    what = f"'{reference.path}' may have {may} decimals, and the format {ref.format} refuses rows with more than {decimals}"
    return f"{what}; write a format with as many decimals, such as 012.{kind.scale or 4}f, or round it in SQL (columns:)"


def _twice_in_map(reference: Reference, plan: EntityPlan, of_entity: Sequence[Reference]) -> str:
    if reference.at[-1] != "key" or not reference.each or reference.at[-2] == "attributes":
        return ""
    (collected,) = (one for one in plan.collections if one.collection.alias == reference.collection)
    of_key = [one for one in of_entity if one.at == reference.at]
    kept = {one.path for one in of_key if one.ref and all(spec.injective for spec in specs_of(one.ref))}
    kept |= set(collected.collection.by)
    kept &= {column.name for column in collected.table.columns if not column.nullable}
    is_proved = collected.collection.kind == "list" and any(
        set(key) <= kept for key in collected.table.proved
    )
    if is_proved or reference is not of_key[0]:
        return ""
    what = f"no constraint proves that the rows of {reference.collection} differ in '{reference.path}'"
    return f"{what}; two equal keys, or a NULL, refuse the row that they belong to"


def _without_text(reference: Reference, kind: Kind) -> str:
    if kind.name != "json":
        return ""
    if reference.ref is None:
        what = f"'{reference.path}' is json: a row with an object or an array there is refused"
        return f"{what}; compare a column that SQL makes of it (columns:)" if reference.in_text else ""
    used = next((used for used in reference.ref.filters if not FILTERS[used.name].null), None)
    spec = None if used is None else FILTERS[used.name]
    takes_all = not reference.in_text if spec is None else spec.nested or spec.of_array
    if takes_all:
        return ""
    path = reference.path
    return f"'{path}' is json: a row with an object or an array there has no text and is refused; write {path}|json"


def _whole_path(reference: Reference) -> str:
    if reference.collection is None:
        return reference.path
    return f"{reference.collection}.{reference.path}"


def _bare_list_fault(reference: Reference) -> str:
    if reference.collection is None:
        return ""
    return f"'{reference.collection}.{reference.path}' is a list; a condition or a ttl takes one value"


def _list_fault(reference: Reference, ref: Ref, kind: Kind) -> str:
    of_list = [used.name for used in ref.filters if FILTERS[used.name].of_list]
    if reference.collection is None or reference.each:
        if not of_list:
            return ""
        if not FILTERS[of_list[0]].of_array:
            return f"'{reference.path}' is one value; {of_list[0]} takes a list's (climb or collect)"
        if kind.name not in _ARRAYS:
            return f"'{reference.path}' is one value; {of_list[0]} takes an array, or a column of a list (collect)"
        what = f"'{reference.path}' is a whole array; {of_list[0]} takes no filter before it"
        return what if len(ref.filters) > 1 else ""
    whole = f"{reference.collection}.{reference.path}"
    if not of_list:
        return f"'{whole}' is a list; add |path, |first, |at:2, |depth or |set, or {{each: {reference.collection}, …}}"
    if FILTERS[of_list[0]].of_array and kind.name in NESTED:
        return f"'{whole}' is a {kind.name} in each row of a list; {of_list[0]} takes one value of each"
    return (
        "" if len(of_list) == 1 else f"'{whole}' is one value after {of_list[0]}; {of_list[1]} takes a list's"
    )


def _ref_fault(reference: Reference, ref: Ref, kind: Kind) -> str:
    path = reference.path
    if what := nested_fault(path, kind, ref, text_wanted=reference.in_text):
        return what
    if ref.format is not None and kind.name not in (*NUMBERS, "plain"):
        return f"the format {ref.format} pads numbers; '{path}' is {kind.name}"
    given = Kind("text") if ref.format is not None else kind
    fixed = ref.format is not None or kind.name in ("date", "timestamp", "plain")
    for used in ref.filters:
        what = _filter_fault(used, given, fixed=fixed)
        if what:
            return what
        spec = FILTERS[used.name]
        given = spec.after(given)
        fixed = spec.order != "lost" and (spec.width == "fixed" or (fixed and spec.width == "given"))
    # Of a key the type of its attribute decides.
    if given.name == "binary" and reference.in_text and not isinstance(reference.at[-1], int):
        return f"'{path}' is {_BYTES}"
    return ""


_BYTES = "bytes, which cannot be written as text; use |hash, a key of type binary, or the value as it is"


_ARRAYS = frozenset({"list", "set", "json", "plain"})
"""Kinds of a value that may be a list."""
_OF_NO_SET = frozenset({"boolean", "json", "list", "map", "set"})


def _filter_fault(used: Filter, given: Kind, *, fixed: bool) -> str:
    spec = FILTERS[used.name]
    if spec.of_array and members_of(given).name in _OF_NO_SET:
        return f"a set holds texts, numbers or bytes; its members would be {members_of(given).name}"
    if spec.takes and given.name not in (*spec.takes, "plain"):
        return f"the filter '{used.name}' takes {' or '.join(sorted(spec.takes))}; this is {given.name}"
    if given.name == "binary" and not spec.of_bytes:
        return f"the filter '{used.name}' takes text; this is {_BYTES}"
    if spec.fixed and not fixed:
        return f"the filter '{used.name}' takes text of fixed width: pad the number ({{total:010|desc}}) or write |iso:s"
    return ""


# ── What can be proved about base keys before a row is read: that no two rows, or items, make the same key ──

_OPEN_KINDS = frozenset({"text", "json", "unknown", "binary", "plain", "list", "map", "set"})
SPELLED = frozenset({"uuid", "date", "time", "timestamp"})
"""Kinds with values that can be spelled in two ways if the source keeps them as text."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_ALPHABETS = {
    "date": MOMENT,
    "time": MOMENT,
    "timestamp": MOMENT,
    "uuid": f"{DIGITS}abcdef",
    "boolean": _LETTERS,
}
_ANY_VALUE = f"{MOMENT} ,/{_LETTERS}{_LETTERS.upper()}"
"""Characters in the text of a value of a closed kind; with |text, also of a value without a form in its kind."""


def key_facts(plan: EntityPlan, design: ItemDesign, table: TableDesign) -> tuple[str, bool]:
    """The attribute of the base key with two open parts ('' if none), because of which two rows can make one key;
    and whether no two rows of the entity make the same key."""
    ambiguous = ""
    kept: set[str] = set()
    readable = True
    for attribute, template in zip(table.key, design.key, strict=False):
        open_refs = [ref for ref in template.refs if not is_closed(ref, plan, table.separator)]
        if len(open_refs) > 1 and not ambiguous:
            ambiguous = attribute.name
        if len(open_refs) > 1 or not _separated(template, plan, table.separator):
            readable = False
        kept |= {_given_back(ref, plan) for ref in template.refs if _injective(ref, plan)}
    return ambiguous, readable and _holds_unique_key(plan, kept)


def _given_back(ref: Ref, plan: EntityPlan) -> str:
    """The path of the value that can be read from the key: a climb's path ends in the row's own value."""
    alias, _, name = ref.paths[0].partition(".")
    collected = plan.collected(alias)
    is_climb = collected is not None and collected.collection.kind == "climb"
    return name if is_climb and any(spec.holds_list for spec in specs_of(ref)) else ref.paths[0]


def is_closed(ref: Ref, plan: EntityPlan, separator: str) -> bool:
    """Whether the text can never contain the separator."""
    kind = kind_of(ref.paths[0], plan)
    closed = ref.format is not None or kind is None or kind.name not in _OPEN_KINDS
    if closed and kind is not None:
        alphabet = _ANY_VALUE if keeps_every_value(ref.filters) else _ALPHABETS.get(kind.name, DIGITS)
        closed = not set(separator) <= set(alphabet)
    for used in ref.filters:
        spec = FILTERS[used.name]
        closed = closed if spec.closed == "same" else spec.closed
        if set(separator) <= set(spec.alphabet) or (spec.null and separator in used.args[0]):
            closed = False
    return closed


def unproved_items(plans: Sequence[EntityPlan], table: TableDesign) -> dict[str, frozenset[str]]:
    """Item types per entity whose keys are not proved unique; these are claimed at run time."""
    unproved: dict[str, set[str]] = {plan.entity.name: set() for plan in plans}
    for plan in plans:
        for item in plan.entity.items:
            _, is_unique = key_facts(plan, item, table)
            if not is_unique:
                unproved[plan.entity.name].add(item.type)
    for first, second in meeting_items(plans, table):
        for plan, item in (first, second):
            unproved[plan.entity.name].add(item.type)
    return {name: frozenset(types) for name, types in unproved.items()}


Design: TypeAlias = tuple[EntityPlan | None, ItemDesign]
"""An item of an entity; without the entity's plan if no source is given."""


def keys_may_meet(first: Design, second: Design, table: TableDesign) -> bool:
    forms = [
        [_form(template, plan, table.separator) for template in item.key] for plan, item in (first, second)
    ]
    return not any(_apart(a, b) for a, b in zip(*forms, strict=False))


def is_one_row(first: Design, second: Design, table: TableDesign) -> bool:
    """Whether equal keys belong to one row: both contain its key. Two revisions of a mapping may have planned
    the entity.
    """
    (plan, item), (other_plan, other) = first, second
    if plan is None or other_plan is None:
        return False
    kept: set[str] = set()
    for template, other_template in zip(item.key, other.key, strict=False):
        kept |= _given_back_by_both(template, plan, other_template, other_plan, table.separator)
    return _holds_unique_key(plan, kept)


def _given_back_by_both(
    template: Template, plan: EntityPlan, other_template: Template, other_plan: EntityPlan, separator: str
) -> set[str]:
    """Columns of the row that can be read from equal texts of both templates, if their constant text is the same."""
    parts = list(zip(template.parts, other_template.parts, strict=False))
    texts = [(part, beside) for part, beside in parts if isinstance(part, str) or isinstance(beside, str)]
    pairs = [(part, beside) for part, beside in parts if isinstance(part, Ref) and isinstance(beside, Ref)]
    read_back = (
        len(template.parts) == len(other_template.parts)
        and all(part == beside for part, beside in texts)
        and _separated(template, plan, separator)
        and _separated(other_template, other_plan, separator)
    )
    is_open = [
        not (is_closed(ref, plan, separator) and is_closed(beside, other_plan, separator))
        for ref, beside in pairs
    ]
    if not read_back or sum(is_open) > 1:
        return set()
    return {
        ref.paths[0]
        for ref, beside in pairs
        if ref.paths == beside.paths and _gives_same_value(ref, plan, beside, other_plan)
    }


def _gives_same_value(ref: Ref, plan: EntityPlan, beside: Ref, other_plan: EntityPlan) -> bool:
    columns = [
        next((slot.column.real for slot in one.slots if slot.path == ref.paths[0] and not slot.alias), None)
        for one in (plan, other_plan)
    ]
    if len(ref.paths) > 1 or columns[0] is None or columns[0] != columns[1]:
        return False
    kind = kind_of(ref.paths[0], plan)
    if kind is not None and kind.name == "integer" and not ref.filters and not beside.filters:
        return True  # however it is padded
    alike = (ref.format, ref.filters) == (beside.format, beside.filters)
    return alike and _injective(ref, plan) and _injective(beside, other_plan)


def meeting_items(
    plans: Sequence[EntityPlan], table: TableDesign
) -> list[tuple[tuple[EntityPlan, ItemDesign], tuple[EntityPlan, ItemDesign]]]:
    designs = [(plan, item) for plan in plans for item in plan.entity.items]
    forms = [[_form(template, plan, table.separator) for template in item.key] for plan, item in designs]
    # Only a beginning of a beginning can meet it, and the sorted ones that begin with it follow it.
    order = sorted(range(len(designs)), key=lambda at: forms[at][0].beginning)
    pairs = []
    for place, first in enumerate(order, 1):
        for second in islice(order, place, None):
            if not forms[second][0].beginning.startswith(forms[first][0].beginning):
                break
            if not any(_apart(a, b) for a, b in zip(forms[first], forms[second], strict=False)):
                pairs.append(tuple(sorted((first, second))))
    return [(designs[first], designs[second]) for first, second in sorted(pairs)]


def _injective(ref: Ref, plan: EntityPlan) -> bool:
    if len(ref.paths) != 1:
        return False
    kind = kind_of(ref.paths[0], plan)
    if kind is not None and kind.name in SPELLED and plan.loosely_typed:
        return False
    specs = [(FILTERS[used.name], used.args) for used in ref.filters]
    if kind is not None and len(specs) == 1 and kind.name in specs[0][0].whole.get(specs[0][1], ()):
        return True
    kept = specs[1:] if specs and _drops_only_padding(specs[0][0], ref, plan) else specs
    return all(spec.injective for spec, _ in kept)


def _drops_only_padding(spec: FilterSpec, ref: Ref, plan: EntityPlan) -> bool:
    """Whether texts that the filter makes equal are equal in the source, such as 'a' and 'a ' of CHAR(2)."""
    column = column_of(ref.paths[0], plan)
    return column is not None and not (plan.loosely_typed or spec.beyond) and spec.mends in column.alike


def equalled(plan: EntityPlan, item_type: str) -> Iterator[str]:
    """Filters that a collation needs, and that alone leave the item's key unproved, each with its column."""
    item = next(item for item in plan.entity.items if item.type == item_type)
    refs = [ref for template in item.key for ref in template.refs]
    is_whole = _holds_unique_key(plan, {path for ref in refs for path in ref.paths})
    for ref in refs if is_whole else ():
        column = column_of(ref.paths[0], plan)
        alike = column.alike if column is not None else ()
        specs = {used.name: FILTERS[used.name] for used in ref.filters}
        names = [name for name, spec in specs.items() if spec.beyond and spec.mends in alike]
        if names:
            more = "make texts equal that its collation distinguishes (leading spaces, rare letters)"
            yield f": {' and '.join(names)} of {ref.paths[0]} can {more}"


def _holds_unique_key(plan: EntityPlan, kept: set[str]) -> bool:
    """Whether `kept` (paths that can be read from the key) contain a key of the root table.

    The row's own key counts, proved or not: a read of two rows of one key ends there. A unique key may have
    NULLs: they refuse the row in a base key.
    """
    named = tuple(column.name for column in plan.key)
    return plan.is_single or set(named) <= kept or any(set(key) <= kept for key in plan.table.proved)


def key_doubt(plan: EntityPlan) -> str:
    """Why two rows could have one key; '' if a constraint of the source rules that out."""
    names = {column.name for column in plan.key}
    if any(set(key) <= names for key in plan.table.proved):
        return ""
    doubts = [why for key, why in plan.table.doubts if set(key) <= names]
    return doubts[0] if doubts else f"{plan.table.name} has no primary key or unique index of these columns"


def _separated(template: Template, plan: EntityPlan, separator: str) -> bool:
    varying = 0
    for part in template.parts:
        if isinstance(part, str):
            varying = 0 if separator in part else varying
        elif not _is_fixed(part, plan):
            varying += 1
            if varying > 1:
                return False
    return True


def _is_fixed(ref: Ref, plan: EntityPlan) -> bool:
    kind = kind_of(ref.paths[0], plan)
    return not ref.filters and (ref.format is not None or (kind is not None and kind.name == "uuid"))


class _Form(Struct, frozen=True):
    """A key's constant beginning and end, whether more follows the beginning, and its separators (None: unknown)."""

    beginning: str
    ending: str
    open_end: bool
    separators: int | None


def _form(template: Template, plan: EntityPlan | None, separator: str) -> _Form:
    parts = template.parts
    closed = plan is not None and all(is_closed(ref, plan, separator) for ref in template.refs)
    # A value may contain half of a separator of several characters: only single ones can be counted.
    counted = sum(part.count(separator) for part in parts if isinstance(part, str))
    separators = counted if closed and len(separator) == 1 else None
    begin, end = template.beginning, next((part for part in parts[-1:] if isinstance(part, str)), "")
    return _Form(begin, end, len(parts) > bool(begin), separators)


def _apart(form: _Form, other_form: _Form) -> bool:
    shorter = min(len(form.beginning), len(other_form.beginning))
    if form.beginning[:shorter] != other_form.beginning[:shorter]:
        return True
    if not form.ending.endswith(other_form.ending) and not other_form.ending.endswith(form.ending):
        return True
    if None not in (form.separators, other_form.separators) and form.separators != other_form.separators:
        return True
    constant = [form.beginning for form in (form, other_form) if not form.open_end]
    if len(constant) == 2:
        return form.beginning != other_form.beginning
    return bool(constant) and len(constant[0]) < max(len(form.beginning), len(other_form.beginning))
