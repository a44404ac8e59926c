"""What is wrong with the values of an entity: types, formats and filters that do not fit each other."""

from __future__ import annotations

from collections.abc import Iterator

from migrator.errors import Fault
from migrator.facts import EntityPlan, Kind
from migrator.mapping.check_types import bare_fault, nested_fault, refused, too_precise
from migrator.mapping.document import Document
from migrator.mapping.filters import FILTERS, SAME_KIND
from migrator.mapping.references import Reference, references_of
from migrator.mapping.uniqueness import column_of, kind_of
from migrator.model import Filter, Mapping, Ref

_NUMBERS = frozenset({"integer", "number", "float"})
_FIXED_WIDTH = frozenset({"iso", "date", "month", "year", "bucket"})


def value_faults(mapping: Mapping, plan: EntityPlan, document: Document) -> Iterator[Fault]:
    """A fault for each value that its column's type does not fit."""
    for reference in references_of(plan.entity, mapping.table):
        kind = kind_of(_whole_path(reference), plan)
        if kind is None:
            continue
        column = column_of(_whole_path(reference), plan)
        if kind.name == "unknown" and column is not None:
            what = refused(_whole_path(reference), column)
        elif reference.ref is not None:
            what = _list_fault(reference, reference.ref) or _ref_fault(reference, reference.ref, kind)
        else:
            what = _bare_list_fault(reference) or bare_fault(reference.path, kind, "a condition or a ttl")
        if what:
            yield document.fault(reference.at, what)
        elif warning := too_precise(reference.path, kind, reference.ref):
            yield document.fault(reference.at, warning, warning=True)


def _whole_path(reference: Reference) -> str:
    if reference.collection is None:
        return reference.path
    return f"{reference.collection}.{reference.path}"


def _bare_list_fault(reference: Reference) -> str:
    if reference.collection is None:
        return ""
    return f"'{reference.collection}.{reference.path}' is a list; a condition or a ttl takes one value"


def _list_fault(reference: Reference, ref: Ref) -> str:
    """What is wrong with the filters that make one value of a list's."""
    of_list = [used.name for used in ref.filters if FILTERS[used.name].of_list]
    if reference.collection is None or reference.each:
        what = f"'{reference.path}' is one value; {of_list[0]} takes a list's" if of_list else ""
        return f"{what} (climb or collect)" if what else ""
    whole = f"{reference.collection}.{reference.path}"
    if not of_list:
        return f"'{whole}' is a list; write |path, |first, |at:2 or |depth behind it, or {{each: {reference.collection}, …}}"
    return (
        "" if len(of_list) == 1 else f"'{whole}' is one value after {of_list[0]}; {of_list[1]} takes a list's"
    )


def _ref_fault(reference: Reference, ref: Ref, kind: Kind) -> str:
    path = reference.path
    if what := nested_fault(path, kind, ref, text_wanted=reference.in_text):
        return what
    if ref.format is not None and kind.name not in (*_NUMBERS, "plain"):
        return f"the format {ref.format} pads numbers; '{path}' is {kind.name}"
    given = Kind("text") if ref.format is not None else kind
    fixed = ref.format is not None or kind.name in ("date", "timestamp", "plain")
    for used in ref.filters:
        what = _filter_fault(used, given, fixed=fixed)
        if what:
            return what
        given = given if used.name in SAME_KIND else FILTERS[used.name].gives
        fixed = used.name in _FIXED_WIDTH or (fixed and used.name in (*SAME_KIND, "desc"))
    return ""


def _filter_fault(used: Filter, given: Kind, *, fixed: bool) -> str:
    spec = FILTERS[used.name]
    if spec.takes and given.name not in (*spec.takes, "plain"):
        return f"the filter '{used.name}' takes {' or '.join(sorted(spec.takes))}; this is {given.name}"
    if spec.fixed and not fixed:
        return f"the filter '{used.name}' takes text of fixed width: pad the number ({{total:010|desc}}) or write |iso:s"
    return ""
