"""What is wrong with a mapping's table and indexes by DynamoDB's own rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from migrator.errors import Fault
from migrator.limits import GLOBAL_INDEXES, INDEX_NAME, LOCAL_INDEXES, PROJECTED_ATTRIBUTES
from migrator.mapping.document import Document, Path, did_you_mean
from migrator.mapping.reserved import RESERVED_WORDS
from migrator.model import OWN_TYPES, Index, Mapping, TableDesign

_TABLE: Path = ("table",)


def table_faults(mapping: Mapping, document: Document) -> Iterator[Fault]:
    """Faults and warnings of the table's key and of its indexes."""
    table = mapping.table
    yield from _key_faults(table, document)
    yield from _type_faults(mapping, document)
    yield from _counts(table, document)
    for index in table.indexes:
        at = (*_TABLE, "indexes", index.name)
        if not INDEX_NAME.fullmatch(index.name):
            what = "the name of an index has 3 to 255 of A-Z a-z 0-9 _ . -"
            yield document.fault(at, what)
        if index.local:
            yield from _local_faults(table, index, document, at)
        yield from _projection_faults(mapping, index, document, at)
        yield from _tombstone_faults(table, index, document, at)


def _key_faults(table: TableDesign, document: Document) -> Iterator[Fault]:
    types: dict[str, str] = {}
    places = [((*_TABLE, "key"), table.key)]
    places += [((*_TABLE, "indexes", index.name, "key"), index.attributes) for index in table.indexes]
    reserved = {table.type_attribute, table.ttl, *table.own_attributes}
    for at, attributes in places:
        for attribute in attributes:
            if attribute.name in reserved:
                yield document.fault(
                    at, f"'{attribute.name}' is written by migrator itself; choose another name"
                )
            if types.setdefault(attribute.name, attribute.type) != attribute.type:
                what = (
                    f"'{attribute.name}' is {types[attribute.name]} in another key and {attribute.type} here"
                )
                yield document.fault(at, f"{what}; an attribute has one type")
            if attribute.name.upper() in RESERVED_WORDS:
                what = f"'{attribute.name}' is a reserved word of DynamoDB; conditions must write it as #{attribute.name}"
                yield document.fault(at, what, warning=True)
        twice = [name for name, count in Counter(one.name for one in attributes).items() if count > 1]
        for name in twice:
            yield document.fault(at, f"'{name}' stands twice in one key")


def _type_faults(mapping: Mapping, document: Document) -> Iterator[Fault]:
    for name, entity in mapping.entities.items():
        for item in entity.items:
            if item.type in OWN_TYPES:
                what = f"the type {item.type} is migrator's own; choose another name"
                yield document.fault(("entities", name, "items", item.type), what)


def _tombstone_faults(table: TableDesign, index: Index, document: Document, at: Path) -> Iterator[Fault]:
    """A tombstone has no keys but the table's: it is in an index that is made of these alone."""
    if index.own_attributes(table) or index.projection == "all" or table.type_attribute in index.projection:
        return
    what = (
        f"what is deleted leaves tombstones in this index, which only {table.type_attribute} tells from items"
    )
    yield document.fault((*at, "project"), f"{what}; project it too", warning=True)


def _counts(table: TableDesign, document: Document) -> Iterator[Fault]:
    local = [index for index in table.indexes if index.local]
    others = len(table.indexes) - len(local)
    at = (*_TABLE, "indexes")
    if others > GLOBAL_INDEXES:
        what = f"{others} global indexes; a table has {GLOBAL_INDEXES} unless AWS raises the quota; overload some"
        yield document.fault(at, what)
    if len(local) > LOCAL_INDEXES:
        yield document.fault(at, f"{len(local)} local indexes; a table has {LOCAL_INDEXES} at most")
    projected = sum(len(index.projection) for index in table.indexes if isinstance(index.projection, tuple))
    if projected > PROJECTED_ATTRIBUTES:
        what = f"{projected} projected attributes over all indexes; DynamoDB takes {PROJECTED_ATTRIBUTES}; project all"
        yield document.fault(at, what)


def _local_faults(table: TableDesign, index: Index, document: Document, at: Path) -> Iterator[Fault]:
    if len(table.key) < 2:
        yield document.fault(at, "a table without a sort key takes no local index; write it without local")
    elif tuple(index.partition) != table.key[:1] or len(index.sort) != 1 or index.sort[0] in table.key:
        what = (
            f"the key of a local index is {table.key[0].name} and one attribute that is no key of the table"
        )
        yield document.fault((*at, "key"), what)


def _projection_faults(mapping: Mapping, index: Index, document: Document, at: Path) -> Iterator[Fault]:
    if not isinstance(index.projection, tuple):
        return
    names = _attributes(mapping)
    always = {one.name for one in (*mapping.table.key, *index.attributes)}
    for name in index.projection:
        if name in always:
            yield document.fault(
                (*at, "project"), f"'{name}' is a key, so it is projected anyway", warning=True
            )
        elif names is not None and name not in names:
            what = f"no item has an attribute '{name}'{did_you_mean(name, names)}"
            yield document.fault((*at, "project"), what, warning=True)


def _attributes(mapping: Mapping) -> set[str] | None:
    """Every attribute that an item may have; None where `keep: all` means columns that only the source knows."""
    table = mapping.table
    names = {*table.own_attributes, table.type_attribute} | ({table.ttl} if table.ttl else set())
    names |= {attribute.name for index in table.indexes for attribute in index.attributes}
    for entity in mapping.entities.values():
        names |= entity.attributes.keys()
        for item in entity.items:
            if item.keep == "all":
                return None
            names |= item.attributes.keys() | set(item.keep if isinstance(item.keep, tuple) else ())
    return names
