"""Keys that nothing proves to be one row's alone: each is claimed before its item is written."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Protocol

from migrator.errors import RowError
from migrator.mapping.items import CompiledEntity, items_for
from migrator.mapping.keys import item_key_text, split_source
from migrator.model import Item
from migrator.ports import Finding
from migrator.ports.live import Contest, Memory
from migrator.stages.projection import key_text
from migrator.stages.refresh import RowReader


class ClaimBook(Protocol):
    """The part of a journal in which keys are claimed."""

    def claim(self, table_id: str, claims: Sequence[tuple[bytes, str]]) -> dict[bytes, str]: ...

    def release(self, table_id: str, given_up: Sequence[tuple[bytes, str]]) -> None: ...


class Claims:
    """Finds two rows that make one key before one overwrites the other."""

    def __init__(
        self,
        journal: ClaimBook,
        source: RowReader,
        entities: Mapping[str, CompiledEntity],
        unproved: Mapping[str, frozenset[str]],
        table_id: str,
        *,
        memory: Memory | None,
    ) -> None:
        self.journal = journal
        self.source = source
        self.entities = entities
        self.unproved = unproved
        self.table_id = table_id
        self.memory = memory

    def sift(self, entity: CompiledEntity, items: Sequence[Item]) -> tuple[list[Item], list[Finding]]:
        """(the items whose key is theirs, a finding for each other one). The first to claim a key keeps it."""
        types = self.unproved.get(entity.name, frozenset())
        doubtful = [item for item in items if item[entity.table.type_attribute] in types]
        if not doubtful:
            return list(items), []
        owners = self._owners(entity, doubtful)
        kept, findings, wishes = [], [], []
        for item in items:
            owner = owners.get(digest_of(entity, item))
            if owner is None or owner == item[entity.table.source_attribute]:
                kept.append(item)
            else:
                findings.append(_collision(entity, item, owner))
                wishes.append(Contest(entity.table.key_of(item), (entity.name, findings[-1].source_key)))
        if wishes and self.memory is not None:
            # Whoever gives the key up later asks for those who want it.
            self.memory.contest(wishes)
        return kept, findings

    def _owners(self, entity: CompiledEntity, items: Sequence[Item]) -> dict[bytes, str]:
        """Who has each key that several rows claim."""
        claims: dict[bytes, str] = {}
        for item in items:
            claims.setdefault(digest_of(entity, item), str(item[entity.table.source_attribute]))
        owners = {**claims, **self.journal.claim(self.table_id, list(claims.items()))}
        stale = [
            digest
            for digest, owner in owners.items()
            if owner != claims[digest] and not self._holds(digest, owner)
        ]
        if stale:
            self.journal.release(self.table_id, [(digest, owners[digest]) for digest in stale])
            again = [(digest, claims[digest]) for digest in stale]
            owners.update(dict(again))
            owners.update(self.journal.claim(self.table_id, again))
        return owners

    def _holds(self, digest: bytes, owner: str) -> bool:
        """Whether the owner's row, as it is now, still makes the key; a row that moved on gives it up."""
        name, key = split_source(owner)
        entity = self.entities.get(name)
        if entity is None:
            return True
        for row in self.source.read_rows(entity.plan, [key]):
            try:
                return any(digest_of(entity, item) == digest for item in items_for(entity, row))
            except RowError:
                return False
        return False


def digest_of(entity: CompiledEntity, item: Item) -> bytes:
    """16 bytes that stand for the item's key."""
    text = item_key_text(entity.table.key_of(item))
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _collision(entity: CompiledEntity, item: Item, owner: str) -> Finding:
    name, key = split_source(owner)
    return Finding(
        kind="collision",
        entity=entity.name,
        reason=f"{name} {key} makes the same key and was first",
        source_key=split_source(str(item[entity.table.source_attribute]))[1],
        item_key=key_text(entity.table, item),
        item_type=entity.table.type_of(item),
        owner=owner,
    )
