"""What access patterns give back, laid over the items: whether those items, and the index, hold it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from migrator.errors import Fault
from migrator.facts import EntityPlan
from migrator.mapping.document import Document, Path, did_you_mean
from migrator.mapping.stored_keys import StoredKey, asked_keys
from migrator.model import Mapping, Part, Pattern


def return_faults(mapping: Mapping, document: Document, plans: Sequence[EntityPlan] = ()) -> Iterator[Fault]:
    """Faults and warnings of what patterns return. `plans`: where the source is known, so that keep: all is too."""
    columns = {plan.entity.written: {one.name for one in plan.table.columns} for plan in plans}
    for pattern in mapping.patterns.values():
        asked = mapping.table.asked(pattern.index)
        keys = list(asked_keys(mapping, pattern, asked)) if asked is not None else []
        if asked is not None and keys:
            yield from _Returns(mapping, pattern, keys, columns).faults(document)
    yield from _unread(mapping, document)


class _Returns:
    """One pattern against the items that its key condition can give."""

    def __init__(
        self,
        mapping: Mapping,
        pattern: Pattern,
        keys: Sequence[StoredKey],
        columns: dict[str, set[str]],
    ) -> None:
        self.mapping = mapping
        self.pattern = pattern
        self.keys = keys
        self.columns = columns
        self.at: Path = ("access_patterns", pattern.name, "returns")

    def faults(self, document: Document) -> Iterator[Fault]:
        yield from self._types(document)
        yield from self._expiry(document)
        for part in self.pattern.parts:
            at = (*self.at, part.name, "attributes") if part.name else self.at
            for name in part.attributes:
                what = self._attribute_fault(part, name)
                if what:
                    yield document.fault(at, what)

    def _types(self, document: Document) -> Iterator[Fault]:
        given = {key.item.type for key in self.keys}
        named = {part.type for part in self.pattern.parts if part.type}
        if not named and len(given) > 1:
            what = f"the key gives items of several types ({', '.join(sorted(given))}); return parts by type"
            yield document.fault(self.at, f"{what}, or ask with a longer prefix", warning=True)
        for part in self.pattern.parts:
            if part.type in self._known_types() - given:
                what = f"no {part.type} has such a key; the key gives {', '.join(sorted(given))}"
                yield document.fault((*self.at, part.name, "type"), what)
        for type_ in sorted(given - named if named else ()):
            what = f"the key also gives items of type {type_}, which are read, paid for and left out"
            yield document.fault(self.at, what, warning=True)

    def _expiry(self, document: Document) -> Iterator[Fault]:
        """DynamoDB deletes late, so readers hide what has expired; they cannot where the index does not say so."""
        table = self.mapping.table
        index = next((one for one in table.indexes if one.name == self.pattern.index), None)
        held = (
            table.ttl is None or index is None or index.projection == "all" or table.ttl in index.projection
        )
        expiring = sorted({key.item.type for key in self.keys if key.item.expiry})
        if not held and expiring and index is not None:
            what = f"{index.name} does not project '{table.ttl}', so {expiring[0]} items show until DynamoDB deletes them"
            yield document.fault(self.at, f"{what}, up to days after they expired; add it", warning=True)

    def _known_types(self) -> set[str]:
        return {item.type for entity in self.mapping.entities.values() for item in entity.items}

    def _attribute_fault(self, part: Part, name: str) -> str:
        keys = [key for key in self.keys if not part.type or key.item.type == part.type]
        known = [self._attributes(key) for key in keys]
        sure = [names for names in known if names is not None]
        if not keys or len(sure) < len(known) or any(name in names for names in sure):
            return ""
        return f"no item that the key gives has '{name}'{did_you_mean(name, set().union(*sure))}"

    def _attributes(self, key: StoredKey) -> set[str] | None:
        """The attributes that the item may have; None where only the source could say."""
        table, item = self.mapping.table, key.item
        names = {*table.own_attributes, table.type_attribute, *(one.name for one in table.key)}
        names |= {table.ttl} if table.ttl and item.expiry else set()
        entered = {entry.index for entry in item.entries}
        names |= {one.name for index in table.indexes if index.name in entered for one in index.attributes}
        names |= key.entity.attributes.keys() | item.attributes.keys()
        if isinstance(item.keep, tuple):
            return names | set(item.keep)
        if item.keep == "all":
            columns = self.columns.get(key.entity.name)
            return None if columns is None else names | (columns - set(item.keep_except))
        return names


def _unread(mapping: Mapping, document: Document) -> Iterator[Fault]:
    """Warnings of indexes, and of attributes that they hold, which no pattern reads."""
    if not mapping.patterns:
        return
    read: dict[str, set[str]] = {}
    for pattern in mapping.patterns.values():
        names = read.setdefault(pattern.index or "", set())
        names |= {name for part in pattern.parts for name in part.attributes}
        names |= {one.attribute for one in pattern.filters} | set(pattern.near.at if pattern.near else ())
    for index in mapping.table.indexes:
        at: Path = ("table", "indexes", index.name)
        if index.name not in read:
            yield document.fault(
                at, "no access pattern asks this index; it costs a write for every item in it", warning=True
            )
        elif isinstance(index.projection, tuple):
            for name in index.projection:
                if name not in read[index.name] | {mapping.table.type_attribute, mapping.table.ttl}:
                    what = f"no access pattern reads '{name}' from {index.name}; it costs storage and writes"
                    yield document.fault((*at, "project"), what, warning=True)
