"""The entities of a mapping as those who write beside others need them."""

from __future__ import annotations

from collections.abc import Sequence

from migrator.mapping.atomic import written_together
from migrator.mapping.changes import needs_memory
from migrator.mapping.items import CompiledEntity
from migrator.model import Mapping
from migrator.stages.refresh import LiveEntity


def live_entities(mapping: Mapping, entities: Sequence[CompiledEntity]) -> dict[str, LiveEntity]:
    """Each entity by its name, with the item types that atomic patterns read.

    Where there are such, its keys are remembered too: a mark tells the keys of one change alone, and items of a change
    whose mark still waits would be seen beside the row's newer ones.
    """
    together = written_together(mapping)
    return {
        one.name: LiveEntity(one, one.plan.entity.written in together or needs_memory(one.plan), types)
        for one in entities
        for types in [together.get(one.plan.entity.written, frozenset())]
    }
