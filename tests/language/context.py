"""A mapping's text laid over a real database: the items of its rows, read by the product's own source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from migrator.mapping.check.check import Checked, check_mapping
from migrator.mapping.items.items import items_for
from migrator.mapping.items.transforms import Transform
from migrator.mapping.model.table import Item
from migrator.source.engines.base import ConnectionOptions
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from tests.support_mapping import parse_mapping

HEAD = """
mapping: 1
table:
  name: AppTable
  key: [PK, SK]
  type: type
  ttl: expiresAt
  indexes:
    GSI1: {key: [GSI1PK, GSI1SK]}
    GSI2: {key: [GSI2PK, GSI2SK]}
"""


def open_source(url: str, text: str) -> SqlSource:
    mapping = parse_mapping(text, "m.yaml").mapping
    return SqlSource(
        source_url(url),
        connection_options=ConnectionOptions(pool_size=2),
        schemas=mapping.schemas_read,
    )


def checked(url: str, text: str, transforms: Mapping[str, Transform] | None = None) -> Checked:
    """The mapping checked against the database. Raises: MappingError with its faults."""
    source = open_source(url, text)
    try:
        return check_mapping(parse_mapping(text, "m.yaml"), source.facts(), transforms)
    finally:
        source.close()


def items(url: str, text: str, transforms: Mapping[str, Transform] | None = None) -> list[Item]:
    """All items of all entities, in the order of entities and keys, without `_rev`."""
    found = checked(url, text, transforms)
    source = open_source(url, text)
    try:
        rows = [
            (entity, row) for entity in found.entities for row in source.read_page(entity.plan, None, None)
        ]
    finally:
        source.close()
    made = [item for entity, row in rows for item in items_for(entity, row)]
    return [{name: value for name, value in item.items() if name != "_rev"} for item in made]


def plain(found: list[Item], *names: str) -> list[tuple[Any, ...]]:
    """The named attributes of each item."""
    return [tuple(item.get(name) for name in names) for item in found]
