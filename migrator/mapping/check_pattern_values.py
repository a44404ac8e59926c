"""Whether the parameters of an access pattern are of types that its templates, filters and keys take."""

from __future__ import annotations

from collections.abc import Iterator

from migrator.errors import Fault
from migrator.facts import Kind
from migrator.mapping.document import Document, Path
from migrator.mapping.filters import FILTERS
from migrator.model import Expression, Index, KeyAttribute, Pattern, Ref, Template

_NUMBERS = frozenset({"integer", "number", "float"})


def value_faults(pattern: Pattern, asked: Index, document: Document) -> Iterator[Fault]:
    """Faults of the pattern's values; `asked` is its index, or the table seen as one."""
    types = {param.name: Kind(param.type) for param in pattern.params}
    for at, expression in _expressions(pattern):
        for ref in expression.refs if isinstance(expression, Template) else [expression]:
            what = _ref_fault(ref, types) if isinstance(ref, Ref) else ""
            if what:
                yield document.fault(at, what)
    for at, attribute, template, operator in key_templates(pattern, asked):
        what = _key_fault(attribute, template, operator)
        if what:
            yield document.fault(at, what)
    yield from _near_faults(pattern, types, document)
    if pattern.limit is not None and pattern.limit in types and types[pattern.limit].name != "integer":
        at = ("access_patterns", pattern.name, pattern.operation, "limit")
        yield document.fault(at, f"the parameter '{pattern.limit}' must be an integer")


def key_templates(pattern: Pattern, asked: Index) -> Iterator[tuple[Path, KeyAttribute, Template, str]]:
    """Where each template of the request's key stands, the attribute that it asks, and how."""
    at: Path = ("access_patterns", pattern.name, pattern.operation, "key")
    for attribute, template in zip(asked.partition, pattern.key, strict=False):
        yield (*at, 0), attribute, template, "equal"
    for attribute, condition in zip(asked.sort, pattern.sort, strict=False):
        for template in condition.values:
            yield (*at, 1), attribute, template, condition.operator


def _expressions(pattern: Pattern) -> Iterator[tuple[Path, Expression]]:
    at: Path = ("access_patterns", pattern.name, pattern.operation)
    for template in pattern.key:
        yield (*at, "key", 0), template
    for condition in pattern.sort:
        for template in condition.values:
            yield (*at, "key", 1), template
    for one in pattern.filters:
        for value in one.values:
            yield (*at, "filter", one.attribute), value


def _ref_fault(ref: Ref, types: dict[str, Kind]) -> str:
    for path in ref.paths:
        if path not in types:
            continue  # the parser has said so
        kind = types[path]
        if ref.format is not None and kind.name not in _NUMBERS:
            return f"the format {ref.format} pads numbers; the parameter '{path}' is {kind.name}"
        given = Kind("text") if ref.format is not None else kind
        for used in ref.filters:
            spec = FILTERS[used.name]
            if spec.takes and given.name not in spec.takes:
                return f"the filter '{used.name}' takes {' or '.join(sorted(spec.takes))}; '{path}' is {given.name}"
            given = given if used.name == "or" else spec.gives
    return ""


def _key_fault(attribute: KeyAttribute, template: Template, operator: str) -> str:
    if attribute.type == "text":
        return ""
    if len(template.parts) != 1 or not isinstance(template.parts[0], Ref):
        return f"{attribute.name} is a {attribute.type} key: it takes one value in braces"
    if operator == "begins_with" and attribute.type == "number":
        return f"{attribute.name} is a number key: it has no beginning; write ge, gt, le, lt or between"
    return ""


def _near_faults(pattern: Pattern, types: dict[str, Kind], document: Document) -> Iterator[Fault]:
    within = pattern.near.within_m if pattern.near else None
    if isinstance(within, str) and within in types and types[within].name not in _NUMBERS:
        at = ("access_patterns", pattern.name, "near", "within_m")
        yield document.fault(at, f"the parameter '{within}' must be a number of metres")
