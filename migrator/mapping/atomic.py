"""Item types that are written together, because an access pattern that says `atomic: true` reads them together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from migrator.errors import Fault
from migrator.limits import TRANSACTION_ACTIONS
from migrator.mapping.document import Document, Path
from migrator.mapping.stored_keys import asked_keys
from migrator.model import Index, Mapping, Pattern


def written_together(mapping: Mapping) -> dict[str, frozenset[str]]:
    """Per entity (by its name in the mapping), the item types that atomic patterns read; of other entities nothing.

    Two patterns that read items of one entity make one group of them: an item is in one transaction only.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for pattern in mapping.patterns.values():
        if pattern.atomic:
            for entity, types in types_read(mapping, pattern).items():
                found[entity] |= types
    return {entity: frozenset(types) for entity, types in found.items()}


def atomic_faults(mapping: Mapping, document: Document) -> Iterator[Fault]:
    """Warnings of what `atomic: true` cannot give."""
    for pattern in mapping.patterns.values():
        if not pattern.atomic:
            continue
        at: Path = ("access_patterns", pattern.name, "atomic")
        read = types_read(mapping, pattern)
        for what in (
            *_index_risks(mapping.table.asked(pattern.index)),
            *_row_risks(read),
            *_size_risks(read),
        ):
            yield document.fault(at, what, warning=True)


def types_read(mapping: Mapping, pattern: Pattern) -> dict[str, set[str]]:
    """Per entity, the item types of the pattern's parts where it names them, else those that its key can give."""
    asked = mapping.table.asked(pattern.index)
    named = {part.type for part in pattern.parts if part.type}
    found: dict[str, set[str]] = defaultdict(set)
    for key in asked_keys(mapping, pattern, asked) if asked is not None else ():
        if not named or key.item.type in named:
            found[key.entity.name].add(key.item.type)
    return found


def _index_risks(asked: Index | None) -> Iterator[str]:
    if asked is not None and not asked.local:
        yield (
            f"{asked.name} is a global index, which follows the table item by item, whatever was written together; "
            "ask the table"
        )


def _row_risks(read: dict[str, set[str]]) -> Iterator[str]:
    if len(read) > 1:
        yield (
            f"it reads items of several entities ({', '.join(sorted(read))}): those of one row of one entity are written "
            "together, the others come row by row"
        )
    elif sum(map(len, read.values())) == 1:
        yield "a row makes one of the items that it reads: nothing is written together but its old key and its new one"


def _size_risks(read: dict[str, set[str]]) -> Iterator[str]:
    for entity, types in sorted(read.items()):
        if len(types) > TRANSACTION_ACTIONS:
            what = f"a row of {entity} makes up to {len(types)} of its items; a transaction takes {TRANSACTION_ACTIONS}"
            yield f"{what}, and a row with more is written item by item"
        elif 2 * len(types) > TRANSACTION_ACTIONS:
            what = f"a row of {entity} makes up to {len(types)} of its items, and as many tombstones if all keys change"
            yield f"{what}; a transaction takes {TRANSACTION_ACTIONS}, and a row with more is written item by item"
