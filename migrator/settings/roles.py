"""What each role may do on the table and in the source: the rights that its commands or its service need, and no other.

Tables by hand: tests run each role's commands with exactly these rights, and with each of them taken away. Source
of the rights' names: Service Authorization Reference, "Actions, resources, and condition keys for Amazon DynamoDB".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:  # the command line lists the roles, and waits for no mapping
    from migrator.mapping.model.mapping import DocumentQuestion, Mapping, Pattern

RIGHT_OF = {"TransactWriteItems": "PutItem", "BatchExecuteStatement": "PartiQLInsert"}
"""The right that an operation needs where it is not called like it: transactions and statements of ours only put."""

_READ_BY = {"query": "Query", "get": "GetItem", "batch_get": "BatchGetItem"}
_OPEN = ("DescribeTable", "DescribeTimeToLive")
_BESIDE_OTHERS = ("GetItem", "PartiQLInsert", "PutItem")
"""Of a writer that others write beside: the control item, conditional puts, inserts."""


class Role(Struct, frozen=True):
    """`does`: what acts in it. `table`: its rights on the table. `asks`: whether it asks the mapping's access patterns,
    which adds Query, GetItem and BatchGetItem where they need them. `objects`: its rights on the job's bucket; `files`: on
    the place of exported items; `logs`: on the log of imports; `stream`: on the table's stream. `old_tables`, `old_streams`:
    where the source is old tables of DynamoDB, on each of them and on its stream; a role that `asks` has there what the
    patterns ask besides.
    """

    does: str
    table: tuple[str, ...]
    asks: bool = False
    objects: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    logs: tuple[str, ...] = ()
    stream: tuple[str, ...] = ()
    old_tables: tuple[str, ...] = ()
    old_streams: tuple[str, ...] = ()


_READ_OLD = ("BatchGetItem", "DescribeTable", "Query", "Scan")
_LOOK_OLD = ("dynamodb:DescribeStream", "dynamodb:GetShardIterator")
"""Whether a stream tells of all changes since capture was installed."""
_COPY_OLD = ("dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator")
"""The changes, or the last of them."""
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
        "table export, table import",
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
        old_tables=_READ_OLD, old_streams=_LOOK_OLD,
    ),
    "backfill": Role(
        "backfill", (*_OPEN, *_BESIDE_OTHERS, "BatchWriteItem", "Scan"), objects=_PUT_OBJECTS,
        old_tables=_READ_OLD, old_streams=_LOOK_OLD,
    ),
    "relay": Role(
        "relay", (*_OPEN, *_BESIDE_OTHERS), objects=_PUT_OBJECTS, old_tables=_READ_OLD, old_streams=_COPY_OLD,
    ),
    "verify": Role(
        # Puts the control item alone: a repair after `recover JOB source-restored` says there that the table is whole again.
        "verify, with --repair too", (*_OPEN, "BatchGetItem", "GetItem", "PutItem", "Scan"),
        objects=("s3:GetObject", "s3:ListBucket"), old_tables=_READ_OLD, old_streams=_COPY_OLD,
    ),
    "reverse": Role(
        "reverse check, start, status, stop and verify, with --repair too",
        (*_OPEN, "BatchGetItem", "GetItem", "Scan"),
        stream=("dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator"),
    ),
    "service-reading": Role(
        "a service: Migration.read, dual_write in outbox mode", (), asks=True, old_tables=("DescribeTable",),
    ),
    "service-strict": Role(
        "a service: dual_write in strict mode, Migration.read", (*_OPEN, "GetItem", "PutItem"), asks=True,
        objects=_PUT_OBJECTS, old_tables=_READ_OLD, old_streams=_LOOK_OLD,
    ),
    "service-after": Role(
        "a service after decommission: reads and writes of its own, without migrator",
        ("ConditionCheckItem", "DeleteItem", "GetItem", "PutItem", "UpdateItem"),
        asks=True,
    ),
    "operator": Role(
        "capture, shadow, cutover, query, look, clean, decommission",
        (*_OPEN, "BatchGetItem", "DeleteItem", "GetItem", "PutItem", "Query", "Scan", "UpdateItem"),
        asks=True, old_tables=(*_READ_OLD, "UpdateTable"), old_streams=_COPY_OLD,
    ),
    "report": Role(
        "status, report, findings, cutover status", (*_OPEN, "BatchGetItem", "GetItem"),
        old_tables=_READ_OLD, old_streams=_LOOK_OLD,
    ),
}  # fmt: skip


class TableRights(Struct, frozen=True):
    """Rights on the table, and the indexes that are queried; both sorted."""

    table: tuple[str, ...]
    indexes: tuple[str, ...]

    def named(self) -> list[tuple[str, str]]:
        """(right, index or '' for the table) of all of them."""
        return [*((right, "") for right in self.table), *(("Query", index) for index in self.indexes)]


def rights_of(role: Role, patterns: Iterable[Pattern], *, keeps: bool) -> TableRights:
    """`keeps`: items have attributes of services, which are read before an item is put."""
    asked = [pattern for pattern in patterns if role.asks]
    rights = {_READ_BY[pattern.operation] for pattern in asked if pattern.index is None}
    indexes = {pattern.index for pattern in asked if pattern.index is not None}
    if keeps and "PutItem" in role.table:
        rights.add("BatchGetItem")
    return TableRights(tuple(sorted({*role.table, *rights})), tuple(sorted(indexes)))


class OldRights(Struct, frozen=True):
    """Rights on each old table; (table by the mapping's name, index or * for any) of the indexes that are queried; rights
    on the streams. All sorted."""

    tables: tuple[str, ...]
    indexes: tuple[tuple[str, str], ...]
    streams: tuple[str, ...]


def old_rights_of(role: Role, mapping: Mapping) -> OldRights:
    """What the role needs on the old tables that the mapping declares; nothing where the source is a database.

    Which indexes the patterns ask, the mapping says; by which ones children and parents are found, the tables alone know.
    """
    if not mapping.documents or not role.old_tables:
        return OldRights((), (), ())
    questions = mapping.old_questions if role.asks else []
    asked = {right for question in questions for right in _asked_of_old(question)}
    indexes = {(one.entity.table, one.asked.index) for one in questions if one.asked.index is not None}
    if "Query" in role.old_tables:
        indexes = {(table, "*") for table in mapping.documents}
    return OldRights(tuple(sorted({*role.old_tables, *asked})), tuple(sorted(indexes)), role.old_streams)


def _asked_of_old(question: DocumentQuestion) -> set[str]:
    own = set() if question.asked.index is not None else {_READ_BY[question.asked.operation]}
    return own | ({"BatchGetItem"} if question.entity.joins else set())


# ── in the source: rights on tables that it reads, and on our tables of marks and tickets ──


class SqlRole(Struct, frozen=True):
    """`does`: what acts in it. `rows`: whether it reads the tables that items are made of; `asks`: those that the SQL of
    access patterns names; `ticket`, `mark`: rights on our tables; `installs`: whether it makes them, and triggers; `looks`:
    whether it makes sure that triggers are there; `counts`: whether it asks how many marks there ever were; `writes`:
    whether it makes rows of items."""

    does: str
    rows: bool = False
    asks: bool = False
    ticket: tuple[str, ...] = ()
    mark: tuple[str, ...] = ()
    installs: bool = False
    looks: bool = False
    counts: bool = False
    writes: bool = False


_DRAWS = ("SELECT", "UPDATE")
WRITES = ("SELECT", "INSERT", "UPDATE", "DELETE")

SQL_ROLES = {
    "capture": SqlRole("capture install, capture uninstall", installs=True),
    "backfill": SqlRole("backfill", rows=True, ticket=_DRAWS, looks=True),
    "relay": SqlRole("relay", rows=True, ticket=_DRAWS, mark=WRITES, looks=True),
    "verify": SqlRole("verify, with --repair too", rows=True, ticket=("SELECT",), mark=("SELECT", "INSERT"), looks=True),
    "service-reading": SqlRole(
        "a service: Migration.read, dual_write in outbox mode", asks=True, ticket=("SELECT",), mark=("INSERT",)
    ),
    "service-strict": SqlRole(
        "a service: dual_write in strict mode, Migration.read", rows=True, asks=True, ticket=_DRAWS, mark=("INSERT",)
    ),
    "operator": SqlRole(
        "shadow, cutover, query, look, clean, recover, decommission", rows=True, asks=True,
        ticket=_DRAWS, mark=("SELECT",), looks=True, counts=True,
    ),
    "reverse": SqlRole("reverse check, start, status, stop and verify, with --repair too", rows=True, writes=True),
    "report": SqlRole("status, report, findings, cutover status", rows=True, ticket=("SELECT",), mark=("SELECT",)),
}  # fmt: skip
