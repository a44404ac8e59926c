"""Access patterns laid over the items: whether the keys that they ask for are keys that items have."""

from __future__ import annotations

from collections.abc import Iterator

from migrator.errors import Fault
from migrator.mapping.document import Document, Path
from migrator.model import ItemDesign, Mapping, Pattern, Template


def pattern_faults(mapping: Mapping, document: Document) -> Iterator[Fault]:
    """Faults and warnings of all access patterns."""
    for pattern in mapping.patterns.values():
        yield from _faults(mapping, pattern, document)


def _faults(mapping: Mapping, pattern: Pattern, document: Document) -> Iterator[Fault]:
    at: Path = ("access_patterns", pattern.name)
    key_at = (*at, pattern.operation, "key")
    keys = [(item, key) for item in _items(mapping) if (key := _key_in(mapping, item, pattern))]
    matching = [(item, key) for item, key in keys if _same_form(pattern.key[0], key[0])]
    if not matching:
        known = ", ".join(sorted({key[0].source for _, key in keys})) or "none"
        where = pattern.index or mapping.table.name
        yield document.fault(
            (*key_at, 0), f"no item has a partition key of this form in {where}; there are: {known}"
        )
        return
    yield from _sort_faults(pattern, [key[1] for _, key in matching if len(key) > 1], document, key_at)
    yield from _type_faults(mapping, pattern, document, at)
    yield from _prefix_warnings(mapping, pattern, document, key_at)
    yield from _order_warnings(mapping, pattern, [key[-1] for _, key in matching], document, at)


def _items(mapping: Mapping) -> Iterator[ItemDesign]:
    for entity in mapping.entities.values():
        yield from entity.items


def _key_in(mapping: Mapping, item: ItemDesign, pattern: Pattern) -> tuple[Template, ...]:
    """The item's key in the index that the pattern asks (or in the table); () where it is not in it."""
    if pattern.index is None:
        return item.key
    return next((entry.values for entry in item.entries if entry.index == pattern.index), ())


def _same_form(asked: Template, stored: Template) -> bool:
    """Whether both templates agree in literals, formats and filters; names may differ."""
    return _form(asked) == _form(stored)


def _form(template: Template) -> list[object]:
    return [
        part if isinstance(part, str) else (part.format, [f for f in part.filters if f.name != "or"])
        for part in template.parts
    ]


def _sort_faults(pattern: Pattern, stored: list[Template], document: Document, at: Path) -> Iterator[Fault]:
    if pattern.sort is None:
        return
    if pattern.sort.operator == "equal":
        if not any(_same_form(pattern.sort.values[0], one) for one in stored):
            known = ", ".join(sorted({one.source for one in stored})) or "none"
            yield document.fault(
                (*at, 1), f"no item of this partition has such a sort key; there are: {known}"
            )
        return
    for value in pattern.sort.values:
        begin = value.parts[0] if value.parts and isinstance(value.parts[0], str) else ""
        if not any(_compatible(begin, one) for one in stored):
            known = ", ".join(sorted({one.source for one in stored})) or "none"
            yield document.fault(
                (*at, 1), f"no sort key of this partition begins with '{begin}'; there are: {known}"
            )


def _compatible(begin: str, stored: Template) -> bool:
    first = stored.parts[0] if stored.parts and isinstance(stored.parts[0], str) else ""
    shorter = min(len(first), len(begin))
    return first[:shorter].rstrip("#") == begin[:shorter].rstrip("#") or not first


def _type_faults(mapping: Mapping, pattern: Pattern, document: Document, at: Path) -> Iterator[Fault]:
    types = {item.type for item in _items(mapping)}
    for part in pattern.parts:
        if part.type and part.type not in types:
            what = f"there is no item type '{part.type}'; there are: {', '.join(sorted(types))}"
            yield document.fault((*at, "returns", part.name, "type"), what)


def _prefix_warnings(mapping: Mapping, pattern: Pattern, document: Document, at: Path) -> Iterator[Fault]:
    if pattern.sort is None or pattern.sort.operator != "begins_with":
        return
    last = pattern.sort.values[0].parts[-1:]
    if not last or not isinstance(last[0], str) or not last[0].endswith(mapping.table.separator):
        what = f"a prefix that does not end in '{mapping.table.separator}' also matches longer names (eng, engineering)"
        yield document.fault((*at, 1), what, warning=True)


def _order_warnings(
    mapping: Mapping, pattern: Pattern, stored: list[Template], document: Document, at: Path
) -> Iterator[Fault]:
    separator = mapping.table.separator
    if pattern.order != "exact" or pattern.operation == "get" or separator == "\u0001":
        return
    for template in stored:
        for ref, following in zip(template.parts, template.parts[1:], strict=False):
            plain = not isinstance(ref, str) and ref.format is None and not ref.filters
            if plain and isinstance(following, str) and following.startswith(separator):
                what = (
                    f"order: exact, but in the sort key {template.source} a text before '{separator}' sorts otherwise "
                    'than in SQL (space and ! come before #); write order: any, or separator: "\\u0001"'
                )
                yield document.fault((*at, "order"), what, warning=True)
                return
