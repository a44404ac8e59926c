"""What each role may call: the rights of IAM that its commands or its service need, and no other.

Kept beside the calls: tests run each role's commands with exactly these rights, and with each of them taken away. Source
of the rights' names: Service Authorization Reference, "Actions, resources, and condition keys for Amazon DynamoDB".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the command line lists the roles, and waits for no mapping
    from migrator.model.mapping import Pattern

RIGHT_OF = {"TransactWriteItems": "PutItem", "BatchExecuteStatement": "PartiQLInsert"}
"""The right that an operation needs where it is not called like it: transactions and statements of ours only put."""

_READ_BY = {"query": "Query", "get": "GetItem", "batch_get": "BatchGetItem"}
_OPEN = ("DescribeTable", "DescribeTimeToLive")
_BESIDE_OTHERS = ("GetItem", "PartiQLInsert", "PutItem")
"""Of a writer that others write beside: the control item, conditional puts, inserts."""


@dataclass(frozen=True)
class Role:
    """`does`: what acts in it. `table`: its rights on the table. `asks`: whether it asks the mapping's access patterns,
    which adds Query, GetItem and BatchGetItem where they need them. `objects`: its rights on the job's bucket; `files`: on
    the place of exported items; `logs`: on the log of imports; `stream`: on the table's stream.
    """

    does: str
    table: tuple[str, ...]
    asks: bool = False
    objects: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    logs: tuple[str, ...] = ()
    stream: tuple[str, ...] = ()


_PUT_OBJECTS = ("s3:GetObject", "s3:ListBucket", "s3:PutObject")

ROLES = {
    "deploy": Role(
        "table create, table check, table change",
        (
            *_OPEN, "GetItem", "UpdateTable",
            *("CreateTable", "DescribeContinuousBackups", "UpdateContinuousBackups", "UpdateTimeToLive"),
            *("DescribeContributorInsights", "UpdateContributorInsights", "ListTagsOfResource", "TagResource"),
        ),
    ),
    "import": Role(
        "export items, table import",
        (
            *_OPEN, "GetItem", "PutItem", "Scan", "ImportTable", "DescribeImport", "ListImports", "UpdateTable",
            *("DescribeContinuousBackups", "UpdateContinuousBackups", "UpdateTimeToLive"),
            *("DescribeContributorInsights", "UpdateContributorInsights", "ListTagsOfResource", "TagResource"),
        ),
        objects=_PUT_OBJECTS,
        files=("s3:DeleteObject", *_PUT_OBJECTS),
        # The service writes its log with the rights of who asks for the import.
        logs=(
            *("logs:CreateLogGroup", "logs:CreateLogStream", "logs:DescribeLogGroups", "logs:DescribeLogStreams"),
            *("logs:GetLogEvents", "logs:PutLogEvents", "logs:PutRetentionPolicy"),
        ),
    ),
    "backfill": Role("backfill", (*_OPEN, *_BESIDE_OTHERS, "BatchWriteItem", "Scan"), objects=_PUT_OBJECTS),
    "relay": Role("relay", (*_OPEN, *_BESIDE_OTHERS), objects=_PUT_OBJECTS),
    "verify": Role(
        # Puts the control item alone: a repair after `capture epoch --raise` says there that the table is whole again.
        "verify, with --repair too", (*_OPEN, "BatchGetItem", "GetItem", "PutItem", "Scan"),
        objects=("s3:GetObject", "s3:ListBucket"),
    ),
    "reverse": Role(
        "reverse check, start, status, stop and verify, with --repair too",
        (*_OPEN, "BatchGetItem", "GetItem", "Scan"),
        stream=("dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator"),
    ),
    "service-reading": Role("a service: Migration.read, dual_write in outbox mode", (), asks=True),
    "service-strict": Role(
        "a service: dual_write in strict mode, Migration.read", (*_OPEN, "GetItem", "PutItem"), asks=True,
        objects=_PUT_OBJECTS,
    ),
    "service-after": Role(
        "a service after decommission: reads and writes of its own, without migrator",
        ("ConditionCheckItem", "DeleteItem", "GetItem", "PutItem", "UpdateItem"),
        asks=True,
    ),
    "operator": Role(
        "capture, shadow, cutover, query, look, undo, forget, purge, decommission",
        (*_OPEN, "BatchGetItem", "DeleteItem", "GetItem", "PutItem", "Query", "Scan", "UpdateItem"),
        asks=True,
    ),
    "report": Role("status, report, findings, cutover status", (*_OPEN, "BatchGetItem", "GetItem")),
}  # fmt: skip


@dataclass(frozen=True)
class TableRights:
    """Rights on the table, and the indexes that are queried; both sorted."""

    table: tuple[str, ...]
    indexes: tuple[str, ...]

    def named(self) -> list[tuple[str, str]]:
        """(right, index or '' for the table) of all of them."""
        return [*((right, "") for right in self.table), *(("Query", index) for index in self.indexes)]


def rights_of(role: Role, patterns: Iterable[Pattern]) -> TableRights:
    asked = [pattern for pattern in patterns if role.asks]
    rights = {_READ_BY[pattern.operation] for pattern in asked if pattern.index is None}
    indexes = {pattern.index for pattern in asked if pattern.index is not None}
    return TableRights(tuple(sorted({*role.table, *rights})), tuple(sorted(indexes)))
