"""The rights of each role on the table and in the source: only those that it needs.

Written by hand: tests run each role's commands with exactly these rights, and with each one removed. Source
of the names: Service Authorization Reference, "Actions, resources, and condition keys for Amazon DynamoDB".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from migrator.runtime.values import replace

if TYPE_CHECKING:  # the command line lists the roles, without loading mappings
    from migrator.mapping.model.mapping import DocumentQuestion, Pattern
    from migrator.mapping.model.mapping import Mapping as MappingModel
import json
from collections.abc import Iterator, Mapping, Sequence

_READ_BY = {"query": "Query", "get": "GetItem", "batch_get": "BatchGetItem"}
_OPEN = ("DescribeTable", "DescribeTimeToLive")
_BESIDE_OTHERS = ("GetItem", "PartiQLInsert", "PutItem")
"""Rights of a writer next to others: the control item, conditional puts, inserts."""


class Role(Struct, frozen=True):
    """The rights of a role on AWS.

    `does`: its commands or service.
    `asks`: it reads the mapping's access patterns, which adds Query, GetItem and BatchGetItem as needed.
    `objects`: on the job's bucket.
    `files`: on the location of exported items.
    `logs`: on the log of imports.
    `old_tables`, `old_streams`: of a source of old DynamoDB tables; `asks` adds the patterns' rights there.
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
"""To check whether a stream contains all changes since capture was installed."""
_COPY_OLD = ("dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator")
"""To read the changes, or the last of them."""
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
        # The service writes its log with the rights of the user who requests the import.
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
        # Puts the control item only: a repair after `recover JOB source-restored` records there that the table is complete
        # again.
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
        "capture, shadow, cutover, look, clean, decommission",
        (*_OPEN, "BatchGetItem", "DeleteItem", "GetItem", "PutItem", "Query", "Scan", "UpdateItem"),
        asks=True, old_tables=(*_READ_OLD, "UpdateTable"), old_streams=_COPY_OLD,
    ),
    "report": Role(
        "status, report, findings, cutover status", (*_OPEN, "BatchGetItem", "GetItem"),
        old_tables=_READ_OLD, old_streams=_LOOK_OLD,
    ),
}  # fmt: skip


class Rights(Struct, frozen=True):
    """The rights of a role.

    `table`, `indexes`: on the table, and the indexes that it queries, both sorted.
    `objects`, `files`: of S3 on the job's bucket, and on the location of exported items.
    `logs`: of CloudWatch on the log of imports.
    `old_tables`, `old_streams`: on each old table of the source, and on its stream.
    `old_indexes`: (table by the mapping's name, index or * for any) of queried old indexes.
    """

    table: Sequence[str]
    indexes: Sequence[str] = ()
    objects: Sequence[str] = ()
    files: Sequence[str] = ()
    logs: Sequence[str] = ()
    stream: Sequence[str] = ()
    old_tables: Sequence[str] = ()
    old_indexes: Sequence[tuple[str, str]] = ()
    old_streams: Sequence[str] = ()

    def named(self) -> list[tuple[str, str]]:
        return [*((right, "") for right in self.table), *(("Query", index) for index in self.indexes)]


def rights_of(role: Role, patterns: Iterable[Pattern], *, keeps: bool) -> Rights:
    """The role's rights. `keeps`: items have attributes of services, which are read before an item is put."""
    asked = [pattern for pattern in patterns if role.asks]
    rights = {_READ_BY[pattern.operation] for pattern in asked if pattern.index is None}
    indexes = {pattern.index for pattern in asked if pattern.index is not None}
    if keeps and "PutItem" in role.table:
        rights.add("BatchGetItem")
    on_table = sorted({*role.table, *rights})
    return Rights(on_table, sorted(indexes), role.objects, role.files, role.logs, role.stream)


def with_old_rights(rights: Rights, role: Role, mapping: MappingModel) -> Rights:
    """Add rights on the mapping's old tables; unchanged for a database.

    The mapping names the indexes of its patterns; those for children and parents depend on the tables.
    """
    if not mapping.documents or not role.old_tables:
        return rights
    questions = mapping.old_questions if role.asks else []
    asked = {right for question in questions for right in _asked_of_old(question)}
    indexes = {(one.entity.table, one.asked.index) for one in questions if one.asked.index is not None}
    if "Query" in role.old_tables:
        indexes = {(table, "*") for table in mapping.documents}
    of_old = sorted({*role.old_tables, *asked})
    return replace(rights, old_tables=of_old, old_indexes=sorted(indexes), old_streams=role.old_streams)


def _asked_of_old(question: DocumentQuestion) -> set[str]:
    own = set() if question.asked.index is not None else {_READ_BY[question.asked.operation]}
    return own | ({"BatchGetItem"} if question.entity.joins else set())


# ── in the source: rights on tables that it reads, and on our tables of marks and tickets ──


class SqlRole(Struct, frozen=True):
    """The rights of a role in an SQL source.

    `does`: its commands or service.
    `rows`: it reads the tables that items are made of.
    `asks`: it reads the tables in the SQL of access patterns.
    `ticket`, `mark`: on our tables.
    `installs`: it creates them, and triggers.
    `looks`: it checks that triggers exist.
    `counts`: it reads the total number of marks.
    `writes`: it makes rows from items.
    """

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
        "shadow, cutover, look, clean, decommission", rows=True, asks=True,
        ticket=("SELECT",), mark=("SELECT",), looks=True, counts=True,
    ),
    "reverse": SqlRole("reverse check, start, status, stop and verify, with --repair too", rows=True, writes=True),
    "report": SqlRole("status, report, findings, cutover status", rows=True, ticket=("SELECT",), mark=("SELECT",)),
}  # fmt: skip


MARK = '"Sid": "Migrator'
"""Start of our statements' names in a policy: JSON has no comments, so the names record the origin."""
_PARTITIONS = {"cn-": "aws-cn", "us-gov-": "aws-us-gov", "eusc-": "aws-eusc"}


class TablePlace(Struct, frozen=True):
    """The location of the table.

    `account`: 12 digits, or * for the role's own.
    `bucket`: of the job, with the prefix of its objects.
    `items_at`: of exported items, as bucket/prefix; '' in a folder.
    `old`: of each old table by its name in the mapping.
    """

    table: str
    region: str
    account: str = "*"
    bucket: str = ""
    prefix: str = ""
    items_at: str = ""
    old: Mapping[str, TablePlace] = {}

    @property
    def partition(self) -> str:
        return next((name for begin, name in _PARTITIONS.items() if self.region.startswith(begin)), "aws")

    @property
    def table_arn(self) -> str:
        return f"arn:{self.partition}:dynamodb:{self.region}:{self.account}:table/{self.table}"


def policy(role: str, rights: Rights, place: TablePlace, revision: str) -> str:
    """The policy as JSON. `revision`: of the mapping, shortened."""
    of_table = [right for right in rights.table if right not in _OF_IMPORTS]
    of_imports = [right for right in rights.table if right in _OF_IMPORTS]
    indexes = [f"{place.table_arn}/index/{index}" for index in rights.indexes]
    old_indexes = [f"{place.old[table].table_arn}/index/{index}" for table, index in rights.old_indexes]
    old_tables = [old.table_arn for _, old in sorted(place.old.items())]
    log = f"arn:{place.partition}:logs:{place.region}:{place.account}:log-group:/aws-dynamodb/*"
    statements = [
        ("Table", _named(of_table), [place.table_arn]),
        ("Indexes", ["dynamodb:Query"], indexes),
        ("Imports", _named(of_imports), [place.table_arn, f"{place.table_arn}/import/*"]),
        *_of_bucket("", rights.objects, place, f"{place.bucket}/{place.prefix}" if place.bucket else ""),
        *_of_bucket("Items", rights.files, place, place.items_at),
        ("Logs", list(rights.logs), [log]),
        ("Stream", list(rights.stream), [f"{place.table_arn}/stream/*"]),
        ("OldTables", _named(rights.old_tables), old_tables),
        ("OldIndexes", ["dynamodb:Query"], old_indexes),
        ("OldStreams", list(rights.old_streams), [f"{table}/stream/*" for table in old_tables]),
    ]
    # A Sid allows only letters and digits.
    made = f"{role.title().replace('-', '')}{revision}"
    listed = [
        {"Sid": f"Migrator{what}{made}", "Effect": "Allow", "Action": actions, "Resource": places}
        for what, actions, places in statements
        if actions and places
    ]
    return json.dumps({"Version": "2012-10-17", "Statement": listed}, indent=2) + "\n"


_OF_IMPORTS = ("DescribeImport", "ListImports")


def _named(rights: Sequence[str]) -> list[str]:
    return [f"dynamodb:{right}" for right in rights]


def _of_bucket(
    what: str, rights: Sequence[str], place: TablePlace, path: str
) -> Iterator[tuple[str, list[str], list[str]]]:
    if not path:
        return
    bucket = f"arn:{place.partition}:s3:::{path.partition('/')[0]}"
    of_bucket = [right for right in rights if right == "s3:ListBucket"]
    of_objects = [right for right in rights if right != "s3:ListBucket"]
    yield f"{what}Bucket", of_bucket, [bucket]
    yield f"{what}Objects", of_objects, [f"arn:{place.partition}:s3:::{path}*"]
