"""A mapping's table in DynamoDB: created, and compared with its design."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from migrator.model.edges import Probe, TableState
from migrator.model.errors import StoppedError, TargetError
from migrator.model.table import Index, KeyAttribute, TableDesign
from migrator.runtime.retry import Backoff, Retry
from migrator.settings.source import TableOptions
from migrator.target.client import is_loopback
from migrator.target.create import (
    TYPES,
    clock_of,
    creation_request,
    key_schema,
    later_requests,
    option_differences,
    probes,
    projection,
    wanted_answers,
)
from migrator.target.failures import error_code, gave_up, in_words, may_have_worked, passes_at

_READY_S = 300.0
_FIRST_CALL = Backoff(attempts=4, base_s=0.1, cap_s=1.0, limit_s=10.0)


class DynamoTableAdmin:
    """model.edges.TableAdmin over boto3."""

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
        other = list(_differences(design, found, ttl))
        return TableState(
            _table_id(found),
            str(found["TableStatus"]),
            tuple(sentence for _, sentence in other),
            parts=tuple(part for part, _ in other),
        )

    def create(self, design: TableDesign, options: TableOptions | None = None) -> TableState:
        if self._describe(design.name) is not None:
            raise TargetError(
                f"table {design.name} exists already; `migrator table check` says whether it fits"
            )
        name = design.name
        self._change("create_table", name, creation_request(design, options), lambda: self._describe(name))
        self._wait(name)
        unlike = {} if options is None else self._set_options(design, options)
        for operation, request in later_requests(design, TableOptions(pitr=False)):
            self._change(operation, name, request, lambda: self._ttl(name) == design.ttl)
        state = self.state(design)
        if state is None:
            raise StoppedError(f"table {design.name} was created and is gone again; look who deletes it")
        return replace(state, unlike=tuple(unlike.values()))

    def unlike(self, design: TableDesign, options: TableOptions) -> dict[str, str]:
        """Per option that differs, in a table that is there, from what is asked for: a sentence."""
        found = self._describe(design.name) or {}
        told = {}
        for operation in wanted_answers(options):
            table = (
                {"ResourceArn": found.get("TableArn")} if "tags" in operation else {"TableName": design.name}
            )
            with self._unspoken(operation):
                told[operation] = self._call(operation, design.name, table)
        return dict(option_differences(options, found, told))

    def probe(self, design: TableDesign, *, write: bool) -> list[Probe]:
        return probes(self.client, design, write=write)

    def clock(self, design: TableDesign) -> float | None:
        """The service's clock in seconds since 1970, where it tells it; the table must be there."""
        try:
            return clock_of(self.client, design)
        except (ClientError, BotoCoreError) as error:
            raise in_words(error, "describe_table", design.name, self._endpoint) from None

    def _set_options(self, design: TableDesign, options: TableOptions) -> dict[str, str]:
        """How the options are in the end other than asked for, which only an emulator may leave so.

        Raises: TargetError on AWS.
        """
        only = replace(design, ttl=None)
        for operation, request in later_requests(only, options):
            with self._unspoken(operation):
                self._call(operation, design.name, request)
        found = self.unlike(design, options)
        if found and not is_loopback(self._endpoint):
            listed = "; ".join(found.values())
            raise TargetError(
                f"table {design.name} was created, but {listed}; mend it, then `migrator table check`"
            )
        return found

    @contextmanager
    def _unspoken(self, operation: str) -> Iterator[None]:
        """An endpoint on this machine is an emulator, which need not know every operation."""
        try:
            yield
        except TargetError:
            if not is_loopback(self._endpoint):
                raise

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
            found = self._retried("describe_table", name, lambda: self.client.describe_table(TableName=name))
        except ClientError as error:
            if error_code(error) == "ResourceNotFoundException":
                return None
            raise in_words(error, "describe_table", name, self._endpoint) from None
        except BotoCoreError as error:
            raise in_words(error, "describe_table", name, self._endpoint) from None
        return dict(found["Table"])

    def _ttl(self, name: str) -> str | None:
        """The TTL attribute, where TTL is on."""
        found = self._call("describe_time_to_live", name, {"TableName": name}).get(
            "TimeToLiveDescription", {}
        )
        return (
            found.get("AttributeName") if found.get("TimeToLiveStatus") in ("ENABLED", "ENABLING") else None
        )

    def _call(self, operation: str, table: str, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return dict(self._retried(operation, table, lambda: getattr(self.client, operation)(**request)))
        except (ClientError, BotoCoreError) as error:
            raise in_words(error, operation, table, self._endpoint) from None

    def _change(
        self, operation: str, table: str, request: dict[str, Any], is_there: Callable[[], object]
    ) -> None:
        """The same, of a request that is refused once it took effect: one whose answer was lost is sent again."""
        unsure = False

        def once() -> None:
            nonlocal unsure
            try:
                getattr(self.client, operation)(**request)
            except (ClientError, BotoCoreError) as error:
                if unsure and not may_have_worked(error) and is_there():
                    return
                unsure = unsure or may_have_worked(error)
                raise

        try:
            self._retried(operation, table, once)
        except (ClientError, BotoCoreError) as error:
            raise in_words(error, operation, table, self._endpoint) from None

    def _retried(self, operation: str, table: str, work: Callable[[], Any]) -> Any:
        what = f"DynamoDB {operation} on table {table}"
        return self.retry.call(what, work, passes_at(self.client), partial(gave_up, what))

    @property
    def _endpoint(self) -> str:
        return str(self.client.meta.endpoint_url)


def _table_id(found: dict[str, Any]) -> str:
    return str(found.get("TableId") or f"{found.get('TableArn')} {found.get('CreationDateTime')}")


def _indexes(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [*(found.get("GlobalSecondaryIndexes") or []), *(found.get("LocalSecondaryIndexes") or [])]


def _differences(design: TableDesign, found: dict[str, Any], ttl: str | None) -> Iterator[tuple[str, str]]:
    """(part, sentence): what is other in the table than in the mapping."""
    types = {one["AttributeName"]: one["AttributeType"] for one in found.get("AttributeDefinitions", [])}
    wanted, there = _shown_design(design.key[:1], design.key[1:]), _shown(found.get("KeySchema", []), types)
    if wanted != there:
        yield "key", f"its key is {wanted} in the mapping and {there} in the table"
    present = {one["IndexName"]: one for one in _indexes(found)}
    for index in design.indexes:
        if index.name not in present:
            yield f"index {index.name}", f"index {index.name} is missing in the table"
            continue
        yield from _index_differences(index, present.pop(index.name), types)
    for name in sorted(present):
        yield f"index {name}", f"index {name} is in the table and not in the mapping"
    if ttl != design.ttl:
        yield "ttl", f"TTL is {_on(design.ttl)} in the mapping and {_on(ttl)} in the table"


def _index_differences(
    index: Index, found: dict[str, Any], types: dict[str, str]
) -> Iterator[tuple[str, str]]:
    wanted, there = _shown_design(index.partition, index.sort), _shown(found["KeySchema"], types)
    if wanted != there:
        yield (
            f"index {index.name}",
            f"the key of index {index.name} is {wanted} in the mapping and {there} in the table",
        )
    ours, theirs = _projected(projection(index)), _projected(found.get("Projection", {}))
    if ours != theirs:
        yield (
            f"index {index.name}",
            f"index {index.name} projects {ours} in the mapping and {theirs} in the table",
        )


def _shown_design(partition: tuple[KeyAttribute, ...], sort: tuple[KeyAttribute, ...]) -> str:
    types = {one.name: TYPES[one.type] for one in (*partition, *sort)}
    return _shown(key_schema(partition, sort), types)


def _shown(schema: list[dict[str, str]], types: dict[str, str]) -> str:
    return ", ".join(
        f"{one['AttributeName']} ({one['KeyType']} {types.get(one['AttributeName'], '?')})" for one in schema
    )


def _projected(projected: dict[str, Any]) -> str:
    kind = str(projected.get("ProjectionType", "ALL"))
    return (
        f"INCLUDE {', '.join(sorted(projected.get('NonKeyAttributes', [])))}" if kind == "INCLUDE" else kind
    )


def _on(attribute: str | None) -> str:
    return f"on {attribute}" if attribute else "off"
