"""Global indexes of a table that is there: which to add and which to remove so that it fits its mapping, one at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from migrator.dynamodb.admin.create import TYPES, creation_request, key_schema, projection
from migrator.mapping.model.table import Index, TableDesign
from migrator.runtime.errors import Interrupted, TargetError
from migrator.settings.source import TableOptions

Request = dict[str, Any]
_POLL_S = 2.0
_SAID_AGAIN_S = 60.0


@dataclass(frozen=True)
class IndexChanges:
    """`under_way`: indexes that DynamoDB is making or removing. `cannot`: by index, why it cannot be altered."""

    add: tuple[Index, ...]
    remove: tuple[str, ...]
    under_way: tuple[str, ...]
    cannot: dict[str, str]


def index_changes(design: TableDesign, description: dict[str, Any]) -> IndexChanges:
    """What becomes of the table's indexes so that they are the design's."""
    there = {index["IndexName"]: index for index in description.get("GlobalSecondaryIndexes") or []}
    local = {index["IndexName"] for index in description.get("LocalSecondaryIndexes") or []}
    wanted = {index.name: index for index in design.indexes}
    types = {
        one["AttributeName"]: one["AttributeType"] for one in description.get("AttributeDefinitions", [])
    }
    # What an index that goes was alone to use is defined no more.
    cannot = dict(_cannot(design, there, local, types))
    leaving = {name for name, index in there.items() if index.get("IndexStatus") == "DELETING"}
    return IndexChanges(
        add=tuple(
            index
            for name, index in wanted.items()
            if not index.local and name not in cannot and (name not in there or name in leaving)
        ),
        remove=tuple(sorted(there.keys() - wanted.keys() - leaving)),
        under_way=tuple(
            name for name, index in there.items() if index.get("IndexStatus", "ACTIVE") != "ACTIVE"
        ),
        cannot=cannot,
    )


_ALONE = "a local index is made with its table alone; make a global one, or create another table"
_NEITHER = "neither can be altered; write the index under another name, let its patterns ask that one, and take this one out"


def _cannot(
    design: TableDesign, there: dict[str, dict[str, Any]], local: set[str], types: dict[str, str]
) -> Iterator[tuple[str, str]]:
    wanted = {index.name: index for index in design.indexes}
    for name in sorted(local - wanted.keys()):
        yield name, f"it is a local index, and the mapping has none of that name: {_ALONE}"
    for name, index in wanted.items():
        if index.local:
            if name not in local:
                yield name, f"it is missing: {_ALONE}"
        elif name in there:
            definition = there[name]
            same_key = definition["KeySchema"] == key_schema(index.partition, index.sort)
            if not same_key or _projected(definition["Projection"]) != _projected(projection(index)):
                yield (
                    name,
                    f"its {'projection' if same_key else 'key'} is another one in the table: {_NEITHER}",
                )
        for one in index.attributes:
            # DynamoDB takes such a definition, and goes on with the type that it knows.
            known = types.get(one.name, TYPES[one.type])
            if known != TYPES[one.type]:
                what = f"{one.name} is of type {known} in the table, and {TYPES[one.type]} in the mapping"
                yield name, f"{what}: an attribute has one type; take one of another name"


def _projected(definition: dict[str, Any]) -> tuple[str, frozenset[str]]:
    return str(definition.get("ProjectionType", "ALL")), frozenset(definition.get("NonKeyAttributes", []))


def addition(design: TableDesign, index: Index, options: TableOptions) -> Request:
    """UpdateTable's parameters. It takes definitions of the new index's attributes, and of no others."""
    alone = replace(design, indexes=(index,))
    request = creation_request(alone, options)
    names = {attribute.name for attribute in index.attributes}
    return {
        "TableName": design.name,
        "AttributeDefinitions": [
            one for one in request["AttributeDefinitions"] if one["AttributeName"] in names
        ],
        "GlobalSecondaryIndexUpdates": [{"Create": request["GlobalSecondaryIndexes"][0]}],
    }


def removal(design: TableDesign, name: str) -> Request:
    return {"TableName": design.name, "GlobalSecondaryIndexUpdates": [{"Delete": {"IndexName": name}}]}


# ── waiting, for as long as DynamoDB takes ──

Tell = Callable[[str], None]


@dataclass
class IndexWait:
    """Waits until no index is made or removed any more; what it finds is told when it changes, and every minute."""

    describe: Callable[[], dict[str, Any] | None]
    sleep: Callable[[float], None]
    stop: Callable[[], bool]
    tell: Tell
    clock: Callable[[], float] = time.monotonic

    def until_settled(self, table: str) -> dict[str, Any]:
        """The table's description once it is settled. Raises: Interrupted, TargetError."""
        said, said_at = "", 0.0
        while True:
            description = self.describe()
            if description is None:
                raise TargetError(f"there is no table {table} any more; find out what deletes it")
            state = "; ".join(_unsettled(description))
            if not state:
                return description
            if state != said or self.clock() - said_at >= _SAID_AGAIN_S:
                said, said_at = state, self.clock()
                self.tell(state)
            if self.stop():
                raise Interrupted(
                    f"stopped while {state}; DynamoDB goes on by itself, and the same command waits for it"
                )
            self.sleep(_POLL_S)


def _unsettled(description: dict[str, Any]) -> Iterator[str]:
    for index in description.get("GlobalSecondaryIndexes") or []:
        name, status = index["IndexName"], index.get("IndexStatus", "ACTIVE")
        if status == "CREATING" and index.get("Backfilling"):
            items = index.get("ItemCount", 0)
            yield f"index {name} is filled by DynamoDB ({items:,} entries by its last count)"
        elif status != "ACTIVE":
            yield f"index {name} is {status}"
    if description["TableStatus"] != "ACTIVE":
        yield f"the table is {description['TableStatus']}"
