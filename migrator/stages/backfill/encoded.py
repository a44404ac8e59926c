"""How a backfill writes a page alone, with items that each entity's generated function encodes.

Nothing is looked up in an item once it is JSON. So an entity whose keys are claimed (two rows may make one key) or
remembered (rule 7) goes by the path that has items, and so does each row that its function has no code for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar, runtime_checkable

from migrator.mapping.items.encoder import Encoder, compile_encoder, encode_page
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.model.edges import RawRows, Receipt
from migrator.mapping.model.table import EncodedItem
from migrator.stages.backfill.write import NO_TICKET, Copied, FastPath, PagePath, Read


@runtime_checkable
class EncodedPuts(Protocol):
    """A store that also takes items as JSON in DynamoDB's form."""

    def put_encoded(self, items: Sequence[EncodedItem]) -> Receipt: ...


@dataclass(frozen=True)
class EncodedPath:
    """A path with items that generated functions encode, which `write` writes; an entity without one goes by `path`."""

    path: PagePath
    encoders: Mapping[str, Encoder]
    write: Callable[[Encoder, Read], Copied]

    def copy(self, entity: CompiledEntity, read: Read) -> Copied:
        encoder = self.encoders.get(entity.name)
        return self.path.copy(entity, read) if encoder is None else self.write(encoder, read)


def put_alone(path: FastPath, store: EncodedPuts, encoder: Encoder, read: Read) -> Copied:
    """What became of a page that is written while no other writer is at work."""
    page = encode_page(encoder, read.raw(encoder.raw), NO_TICKET, path.clock())
    path.check()
    receipt = store.put_encoded(page.items) if page.items else Receipt()
    written = [key for key, _, _, _ in page.items]
    return Copied(page.rows, page.expired, receipt, page.refused, written)


def encoded_where_possible(path: FastPath, entities: Sequence[CompiledEntity]) -> PagePath:
    """The path with generated functions for the entities whose keys are neither claimed nor remembered."""
    store = path.store
    if not isinstance(store, EncodedPuts):
        return path
    plain = [
        entity
        for entity in entities
        if not path.claims.unproved.get(entity.name) and entity.name not in path.remembered
    ]
    encoders = encoders_of(path.claims.source, plain, compile_encoder)
    return EncodedPath(path, encoders, partial(put_alone, path, store))


Made = TypeVar("Made")


def encoders_of(
    source: object,
    entities: Iterable[CompiledEntity],
    compiled: Callable[[CompiledEntity, frozenset[int]], Made | None],
) -> dict[str, Made]:
    """By entity, of those that have one; they take rows as raw as the source gives them."""
    made = {
        entity.name: compiled(
            entity, source.raw_places(entity.plan) if isinstance(source, RawRows) else frozenset()
        )
        for entity in entities
    }
    return {name: encoder for name, encoder in made.items() if encoder is not None}
