"""Rows as documents in tables of a DynamoDB that is there: the schema of the sources' contract, and tables of one's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.tables import TableReader
from migrator.mapping.language.documents import key_type
from migrator.mapping.model.facts import (
    CollectionPlan,
    Column,
    EntityPlan,
    JoinPlan,
    Kind,
    Slot,
    TableFacts,
)
from migrator.mapping.model.mapping import DocumentTable
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.table import KeyAttribute, TableDesign
from migrator.runtime.retry import Backoff, RateLimit, Retry
from migrator.runtime.values import replace
from migrator.source.dynamodb.finding import Finder
from migrator.source.dynamodb.source import DocumentSource, ReadPace

Wired = dict[str, Any]
_TABLE = TableDesign("new", (KeyAttribute("PK"),), "type")
_SIZE = 25


def wired(value: Any) -> Wired:
    """A value as a document of an application has it; moments and UUIDs are texts."""
    if value is None:
        return {"NULL": True}
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, (int, Decimal)):
        return {"N": str(value)}
    if isinstance(value, bytes):
        return {"B": value}
    if isinstance(value, set):
        return {"SS": sorted(value)}
    if isinstance(value, list):
        return {"L": [wired(one) for one in value]}
    if isinstance(value, dict):
        return {"M": {name: wired(one) for name, one in value.items()}}
    return {"S": value if isinstance(value, str) else _text(value)}


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat(" ")
    return value.isoformat() if isinstance(value, (date, time)) else str(UUID(str(value)))


class OldTables:
    """Tables of one test, by their names; they are gone at its end."""

    def __init__(self, url: str) -> None:
        self.client = dynamodb_client(region=None, profile=None, endpoint=url)
        self.names: list[str] = []

    def make(
        self,
        name: str,
        key: Mapping[str, str],
        rows: Sequence[Mapping[str, Any]] = (),
        *,
        indexes: Mapping[str, Mapping[str, str]] | None = None,
        projection: str = "KEYS_ONLY",
    ) -> None:
        """`key` and `indexes`: attributes with their types, the partition's first."""
        others = dict(indexes or {})
        types = dict(key) | {part: type_ for index in others.values() for part, type_ in index.items()}
        words: dict[str, Any] = {}
        if others:
            words["GlobalSecondaryIndexes"] = [
                {
                    "IndexName": index,
                    "KeySchema": _schema(part),
                    "Projection": {"ProjectionType": projection},
                }
                for index, part in others.items()
            ]
        self.client.create_table(
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[
                {"AttributeName": part, "AttributeType": type_} for part, type_ in types.items()
            ],
            KeySchema=_schema(key),
            **words,
        )
        self.names.append(name)
        self.put(name, rows)

    def put(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Rows as plain values; what is None is left out."""
        items = [{part: wired(value) for part, value in row.items() if value is not None} for row in rows]
        for begin in range(0, len(items), _SIZE):
            puts = [{"PutRequest": {"Item": item}} for item in items[begin : begin + _SIZE]]
            self.client.batch_write_item(RequestItems={name: puts})

    def drop(self, name: str) -> None:
        self.client.delete_table(TableName=name)
        self.names.remove(name)

    def source(
        self, tables: Sequence[TableFacts], real: Mapping[str, str], *, units: float | None = None
    ) -> DocumentSource:
        documents = {
            table.name: DocumentTable(table.primary_key, {one.name: one.declared for one in table.columns})
            for table in tables
        }
        mapping = MappingModel("shop", "", _TABLE, {}, documents=documents)
        pace = ReadPace(RateLimit(None), RateLimit(units))
        retry = Retry(Backoff(attempts=3, base_s=0.01, cap_s=0.02))
        return DocumentSource(mapping, Finder(TableReader(self.client, retry, pace.units), real), pace, 8)


def _schema(key: Mapping[str, str]) -> list[dict[str, str]]:
    roles = zip(key, ("HASH", "RANGE"), strict=False)
    return [{"AttributeName": part, "KeyType": role} for part, role in roles]


@contextmanager
def old_tables(url: str) -> Iterator[OldTables]:
    tables = OldTables(url)
    try:
        yield tables
    finally:
        for name in list(tables.names):
            tables.drop(name)


# ── plans and facts of other sources, with the names and types that a mapping of documents declares ──


def declared(table: TableFacts) -> TableFacts:
    return replace(table, real=table.name, columns=tuple(map(_declared, table.columns)))


def documents_of(table: TableFacts, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows by the written names of their columns."""
    names = _names(table)
    return [{names[real]: value for real, value in row.items()} for row in rows]


def _declared(column: Column) -> Column:
    return replace(column, real=column.name, declared=_type(column.kind))


def _type(kind: Kind) -> str:
    if kind.name == "timestamp" and kind.zone:
        return "timestamp with zone"
    return "number" if kind.name in ("number", "float") else kind.name


def _names(table: TableFacts) -> dict[str, str]:
    return {column.real: column.name for column in table.columns}


def plan_declared(plan: EntityPlan) -> EntityPlan:
    """The plan over declared tables."""
    return replace(
        plan,
        table=declared(plan.table),
        key=tuple(map(_declared, plan.key)),
        slots=tuple(map(_slot, plan.slots)),
        joins=_joins(plan.table, plan.joins),
        collections=tuple(_collection(plan.table, collection) for collection in plan.collections),
        where=tuple((_declared(column), allowed) for column, allowed in plan.where),
    )


def _slot(slot: Slot) -> Slot:
    return replace(slot, column=_declared(slot.column))


def _joins(root: TableFacts, joins: Sequence[JoinPlan]) -> tuple[JoinPlan, ...]:
    tables = {"": root, **{join.alias: join.table for join in joins}}
    return tuple(
        replace(join, table=declared(join.table), on=_pairs(tables[join.parent], join.table, join.on))
        for join in joins
    )


def _pairs(
    ours: TableFacts, theirs: TableFacts, pairs: Sequence[tuple[str, str]]
) -> tuple[tuple[str, str], ...]:
    return tuple((_names(ours)[one], _names(theirs)[other]) for one, other in pairs)


def _collection(root: TableFacts, plan: CollectionPlan) -> CollectionPlan:
    return replace(
        plan,
        table=declared(plan.table),
        link=_pairs(plan.table, root, plan.link),
        joins=_joins(plan.table, plan.joins),
        slots=tuple(map(_slot, plan.slots)),
        column=plan.column and _declared(plan.column),
    )


def key_types(table: TableFacts) -> dict[str, str]:
    """Of the table's key, by the names of its attributes."""
    columns = {column.name: column for column in declared(table).columns}
    return {name: key_type(columns[name].declared) for name in table.primary_key}
