"""Every column that the items of an entity name, with the place in the mapping file that names it."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping as Dict
from dataclasses import dataclass, replace

from migrator.mapping.document import Path
from migrator.model import (
    Condition,
    Const,
    Each,
    Entity,
    Expression,
    ItemDesign,
    MapOf,
    Ref,
    Stored,
    TableDesign,
    Template,
)


@dataclass(frozen=True)
class Reference:
    """`path` as written, without its list; `collection` is the list whose rows it is a column of (None: the row itself).

    `ref` is None where a bare path stands (when, ttl). `each`: it stands inside of an `each` over that list, so it
    means one row of it, not all of them. `in_text`: it is a part of a template.
    """

    path: str
    at: Path
    collection: str | None = None
    ref: Ref | None = None
    each: bool = False
    in_text: bool = False


def references_of(entity: Entity, table: TableDesign) -> Iterator[Reference]:
    """Columns named by keys, indexes, attributes, conditions and expiries (not those that `keep` means)."""
    at: Path = ("entities", entity.written)
    version = entity.version
    plain = {
        name: value
        for name, value in entity.attributes.items()
        if version is None or name != version.attribute
    }
    yield from _of_lists(entity, _values(plain, (*at, "attributes")))
    if version is not None:
        yield Reference(version.column, (*at, "version"), ref=Ref((version.column,)))
    for item in entity.items:
        yield from _of_lists(entity, _item(item, (*at, "items", item.type)))


def _of_lists(entity: Entity, found: Iterator[Reference]) -> Iterator[Reference]:
    """The references, those to a whole list (line.slug) told apart."""
    for one in found:
        alias, _, name = one.path.partition(".")
        whole = one.collection is None and name and alias in entity.lists
        yield replace(one, path=name, collection=alias) if whole else one


def _item(item: ItemDesign, at: Path) -> Iterator[Reference]:
    for number, template in enumerate(item.key):
        yield from _value(template, (*at, "key", number))
    for entry in item.entries:
        for number, template in enumerate(entry.values):
            yield from _value(template, (*at, entry.index, number))
        yield from _conditions(entry.when, (*at, entry.index, "when"))
    yield from _conditions(item.when, (*at, "when"))
    yield from _values(item.attributes, (*at, "attributes"))
    if item.expiry:
        yield Reference(item.expiry.path, (*at, "ttl"))


def _conditions(conditions: tuple[Condition, ...], at: Path) -> Iterator[Reference]:
    for condition in conditions:
        yield Reference(condition.path, (*at, condition.path))


def _values(values: Dict[str, Expression], at: Path, collection: str | None = None) -> Iterator[Reference]:
    for name, value in values.items():
        yield from _value(value, (*at, name), collection)


def _value(value: Expression, at: Path, collection: str | None = None) -> Iterator[Reference]:
    if isinstance(value, Ref):
        for path in value.paths:
            yield Reference(path, at, collection, value, each=collection is not None)
    elif isinstance(value, Template):
        for ref in value.refs:
            yield from (replace(one, in_text=True) for one in _value(ref, at, collection))
    elif isinstance(value, MapOf):
        yield from _values(value.entries, (*at, "map"), collection)
    elif isinstance(value, Each):
        yield from _values(value.attributes, (*at, "attributes"), value.collection)
    elif isinstance(value, Stored):
        yield from _value(value.value, (*at, "from"), collection)
    else:
        assert isinstance(value, Const)
