"""A mapping's table in DynamoDB: created, and compared with its design."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from migrator.errors import StoppedError, TargetError
from migrator.model import Index, KeyAttribute, TableDesign
from migrator.ports import TableState
from migrator.retry import Backoff, Retry
from migrator.target.failures import can_pass, error_code, in_words

_TYPES = {"text": "S", "number": "N", "binary": "B"}
_READY_S = 300.0
_FIRST_CALL = Backoff(attempts=4, base_s=0.1, cap_s=1.0, limit_s=10.0)


class DynamoTableAdmin:
    """ports.TableAdmin over boto3."""

    def __init__(
        self,
        client: Any,
        backoff: Backoff = _FIRST_CALL,
        sleep: Callable[[float], None] = time.sleep,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.client = client
        self.retry = Retry(backoff, stop, sleep)
        self.sleep = sleep

    def state(self, design: TableDesign) -> TableState | None:
        found = self._describe(design.name)
        if found is None:
            return None
        ttl = self._ttl(design.name)
        return TableState(
            _table_id(found), str(found["TableStatus"]), tuple(_differences(design, found, ttl))
        )

    def create(self, design: TableDesign) -> TableState:
        if self._describe(design.name) is not None:
            raise TargetError(
                f"table {design.name} exists already; `migrator table check` says whether it fits"
            )
        self._call("create_table", design.name, **creation_request(design))
        self._wait(design.name)
        if design.ttl:
            specification = {"Enabled": True, "AttributeName": design.ttl}
            self._call("update_time_to_live", design.name, TimeToLiveSpecification=specification)
        state = self.state(design)
        if state is None:
            raise StoppedError(f"table {design.name} was created and is gone again; look who deletes it")
        return state

    def _wait(self, name: str) -> None:
        """Until the table and all its indexes are ACTIVE."""
        waited = 0.0
        while waited < _READY_S:
            found = self._describe(name) or {}
            states = {
                found.get("TableStatus"),
                *(one.get("IndexStatus", "ACTIVE") for one in _indexes(found)),
            }
            if states == {"ACTIVE"}:
                return
            self.sleep(0.5)
            waited += 0.5
        raise StoppedError(
            f"table {name} is not ready after {_READY_S:.0f} s; `migrator table check` says when it is"
        )

    def _describe(self, name: str) -> dict[str, Any] | None:
        try:
            found = self.retry.call(
                f"DynamoDB at {self._endpoint} (describe table {name})",
                lambda: self.client.describe_table(TableName=name),
                can_pass,
            )
        except ClientError as error:
            if error_code(error) == "ResourceNotFoundException":
                return None
            raise in_words(error, "describe_table", name, self._endpoint) from None
        except BotoCoreError as error:
            raise in_words(error, "describe_table", name, self._endpoint) from None
        return dict(found["Table"])

    def _ttl(self, name: str) -> str | None:
        """The TTL attribute, where TTL is on."""
        found = self._call("describe_time_to_live", name).get("TimeToLiveDescription", {})
        return (
            found.get("AttributeName") if found.get("TimeToLiveStatus") in ("ENABLED", "ENABLING") else None
        )

    def _call(self, operation: str, table: str, **request: Any) -> dict[str, Any]:
        request = {"TableName": table, **request}
        try:
            return self.retry.call(
                f"DynamoDB {operation} on table {table}",
                lambda: getattr(self.client, operation)(**request),
                can_pass,
            )
        except (ClientError, BotoCoreError) as error:
            raise in_words(error, operation, table, self._endpoint) from None

    @property
    def _endpoint(self) -> str:
        return str(self.client.meta.endpoint_url)


def creation_request(design: TableDesign) -> dict[str, Any]:
    """CreateTable's parameters without the name: on-demand, all indexes at once."""
    request: dict[str, Any] = {
        "BillingMode": "PAY_PER_REQUEST",
        "KeySchema": _key_schema(design.key[:1], design.key[1:]),
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": _TYPES[type_]}
            for name, type_ in _attributes(design).items()
        ],
    }
    for word, local in (("GlobalSecondaryIndexes", False), ("LocalSecondaryIndexes", True)):
        indexes = [_index_request(index) for index in design.indexes if index.local is local]
        if indexes:
            request[word] = indexes
    return request


def _index_request(index: Index) -> dict[str, Any]:
    return {
        "IndexName": index.name,
        "KeySchema": _key_schema(index.partition, index.sort),
        "Projection": _projection(index),
    }


def _key_schema(partition: tuple[KeyAttribute, ...], sort: tuple[KeyAttribute, ...]) -> list[dict[str, str]]:
    return [{"AttributeName": one.name, "KeyType": "HASH"} for one in partition] + [
        {"AttributeName": one.name, "KeyType": "RANGE"} for one in sort
    ]


def _projection(index: Index) -> dict[str, Any]:
    if isinstance(index.projection, tuple):
        return {"ProjectionType": "INCLUDE", "NonKeyAttributes": list(index.projection)}
    return {"ProjectionType": {"all": "ALL", "keys": "KEYS_ONLY"}[index.projection]}


def _attributes(design: TableDesign) -> dict[str, str]:
    keys = [*design.key, *(attribute for index in design.indexes for attribute in index.attributes)]
    return {attribute.name: attribute.type for attribute in keys}


def _table_id(found: dict[str, Any]) -> str:
    return str(found.get("TableId") or f"{found.get('TableArn')} {found.get('CreationDateTime')}")


def _indexes(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [*(found.get("GlobalSecondaryIndexes") or []), *(found.get("LocalSecondaryIndexes") or [])]


def _differences(design: TableDesign, found: dict[str, Any], ttl: str | None) -> Iterator[str]:
    """Sentences: what is other in the table than in the mapping."""
    types = {one["AttributeName"]: one["AttributeType"] for one in found.get("AttributeDefinitions", [])}
    wanted, there = _shown_design(design.key[:1], design.key[1:]), _shown(found["KeySchema"], types)
    if wanted != there:
        yield f"its key is {wanted} in the mapping and {there} in the table"
    present = {one["IndexName"]: one for one in _indexes(found)}
    for index in design.indexes:
        if index.name not in present:
            yield f"index {index.name} is missing in the table"
            continue
        yield from _index_differences(index, present.pop(index.name), types)
    for name in sorted(present):
        yield f"index {name} is in the table and not in the mapping"
    if ttl != design.ttl:
        yield f"TTL is {_on(design.ttl)} in the mapping and {_on(ttl)} in the table"


def _index_differences(index: Index, found: dict[str, Any], types: dict[str, str]) -> Iterator[str]:
    wanted, there = _shown_design(index.partition, index.sort), _shown(found["KeySchema"], types)
    if wanted != there:
        yield f"the key of index {index.name} is {wanted} in the mapping and {there} in the table"
    ours, theirs = _projected(_projection(index)), _projected(found.get("Projection", {}))
    if ours != theirs:
        yield f"index {index.name} projects {ours} in the mapping and {theirs} in the table"


def _shown_design(partition: tuple[KeyAttribute, ...], sort: tuple[KeyAttribute, ...]) -> str:
    types = {one.name: _TYPES[one.type] for one in (*partition, *sort)}
    return _shown(_key_schema(partition, sort), types)


def _shown(schema: list[dict[str, str]], types: dict[str, str]) -> str:
    return ", ".join(
        f"{one['AttributeName']} ({one['KeyType']} {types.get(one['AttributeName'], '?')})" for one in schema
    )


def _projected(projection: dict[str, Any]) -> str:
    kind = str(projection.get("ProjectionType", "ALL"))
    return (
        f"INCLUDE {', '.join(sorted(projection.get('NonKeyAttributes', [])))}" if kind == "INCLUDE" else kind
    )


def _on(attribute: str | None) -> str:
    return f"on {attribute}" if attribute else "off"
