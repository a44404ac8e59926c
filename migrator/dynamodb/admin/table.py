"""A mapping's table in DynamoDB: created, and compared with its design."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from migrator.dynamodb.admin.create import (
    TYPES,
    clock_of,
    creation_request,
    later_requests,
    option_differences,
    probes,
    projection,
    requests_after_import,
    wanted_answers,
)
from migrator.dynamodb.admin.indexes import (
    IndexChanges,
    IndexWait,
    Tell,
    addition,
    index_changes,
    removal,
)
from migrator.dynamodb.client import is_loopback
from migrator.dynamodb.failures import error_code, gave_up, in_words, may_have_worked, passes_at
from migrator.mapping.model.edges import Probe, TableState
from migrator.mapping.model.table import Index, KeyAttribute, TableDesign
from migrator.runtime.errors import StoppedError, TargetError
from migrator.runtime.retry import Backoff, Retry
from migrator.settings.roles import TableRights
from migrator.settings.source import TableOptions

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
        description = self._describe(design.name)
        if description is None:
            return None
        ttl = self._ttl(design.name)
        differences = list(_differences(design, description, ttl))
        return TableState(
            _table_id(description),
            str(description["TableStatus"]),
            tuple(sentence for _, sentence in differences),
            parts=tuple(part for part, _ in differences),
            extra=tuple(_extra(design, description)),
        )

    def existing(self, design: TableDesign) -> str:
        """The id of a table that must be there and fit the design. Raises: TargetError."""
        state, name = self.state(design), design.name
        if state is None:
            raise TargetError(f"there is no table {name}; run `migrator table create` with this job file")
        wrong = [sentence for sentence in state.differences if sentence not in state.extra]
        if wrong:
            what = f"table {name} is not the mapping's: {'; '.join(wrong)}"
            raise TargetError(f"{what}. Mend one of the two, or name another table in the job")
        return state.table_id

    def create(self, design: TableDesign, options: TableOptions | None = None) -> TableState:
        if self._describe(design.name) is not None:
            raise TargetError(
                f"table {design.name} exists already; `migrator table check` says whether it fits"
            )
        name = design.name
        self._change("create_table", name, creation_request(design, options), lambda: self._describe(name))
        self._wait(name)
        return self._finished(design, options)

    def finish_import(self, design: TableDesign, options: TableOptions) -> TableState:
        """The same for a table that an import has made, and filled: what ImportTable does not take, as far as it is not
        done already."""
        self._wait(design.name)
        arn = str((self._describe(design.name) or {}).get("TableArn"))
        missing = self.unlike(design, options)
        for operation, request in requests_after_import(design, options, arn, missing):
            with self._unspoken(operation):
                self._call(operation, design.name, request)
            self._wait(design.name)
        return self._finished(design, options)

    def _finished(self, design: TableDesign, options: TableOptions | None) -> TableState:
        """The table with the options that are set once it is ACTIVE, TTL last."""
        name = design.name
        unlike = {} if options is None else self._set_options(design, options)
        later = later_requests(design, TableOptions(pitr=False)) if self._ttl(name) != design.ttl else []
        for operation, request in later:
            self._change(operation, name, request, lambda: self._ttl(name) == design.ttl)
        state = self.state(design)
        if state is None:
            raise StoppedError(f"table {design.name} was created and is gone again; find out what deletes it")
        return replace(state, unlike=tuple(unlike.values()))

    def unlike(self, design: TableDesign, options: TableOptions) -> dict[str, str]:
        """Per option that differs, in a table that is there, from what is asked for: a sentence."""
        description = self._describe(design.name) or {}
        answers = {}
        for operation in wanted_answers(options):
            table = (
                {"ResourceArn": description.get("TableArn")}
                if "tags" in operation
                else {"TableName": design.name}
            )
            with self._unspoken(operation):
                answers[operation] = self._call(operation, design.name, table)
        return dict(option_differences(options, description, answers))

    # ── its indexes ──

    def index_changes(self, design: TableDesign) -> IndexChanges:
        """Of a table that must be there, with the design's key. Raises: TargetError."""
        description = self._describe(design.name)
        if description is None:
            raise TargetError(
                f"there is no table {design.name}; run `migrator table create` with this job file"
            )
        if any(part == "key" for part, _ in _differences(design, description, design.ttl)):
            what = f"table {design.name} has another key than the mapping, and the key of a table cannot be altered"
            raise TargetError(f"{what}; name another table in the job")
        return index_changes(design, description)

    def add_index(self, design: TableDesign, index: Index, options: TableOptions, tell: Tell) -> None:
        """Returns when the index is filled. `tell`: of how far DynamoDB is. Raises: Interrupted, TargetError."""
        self._settled(design.name, tell)
        request = addition(design, index, options)
        self._change("update_table", design.name, request, lambda: self._has_index(design.name, index.name))
        self._settled(design.name, tell)

    def remove_index(self, design: TableDesign, name: str, tell: Tell) -> None:
        """Returns when it is gone. Raises: as add_index."""
        self._settled(design.name, tell)
        if self._has_index(design.name, name):
            request = removal(design, name)
            self._change("update_table", design.name, request, lambda: not self._stays(design.name, name))
        self._settled(design.name, tell)

    def settle(self, design: TableDesign, tell: Tell) -> None:
        """Returns when no index is made or removed any more."""
        self._settled(design.name, tell)

    def _settled(self, name: str, tell: Tell) -> None:
        IndexWait(lambda: self._describe(name), self.sleep, self.retry.stop, tell).until_settled(name)

    def _has_index(self, table: str, name: str) -> bool:
        return any(index["IndexName"] == name for index in _indexes(self._describe(table) or {}))

    def _stays(self, table: str, name: str) -> bool:
        """Whether the index is there, and nothing removes it."""
        return any(
            index["IndexName"] == name and index.get("IndexStatus") != "DELETING"
            for index in _indexes(self._describe(table) or {})
        )

    def probe(self, design: TableDesign, *, write: bool, only: TableRights | None = None) -> list[Probe]:
        return probes(self.client, design, write=write, only=only)

    def clock(self, design: TableDesign) -> float | None:
        """The service's clock in seconds since 1970, where it tells it; the table must be there."""
        try:
            return clock_of(self.client, design)
        except (ClientError, BotoCoreError) as error:
            raise in_words(error, "describe_table", design.name, self._endpoint) from None

    def _set_options(self, design: TableDesign, options: TableOptions) -> dict[str, str]:
        """Options that differ from those asked for in the end, which only an emulator may leave so.

        Raises: TargetError on AWS.
        """
        only = replace(design, ttl=None)
        for operation, request in later_requests(only, options):
            with self._unspoken(operation):
                self._call(operation, design.name, request)
        unlike = self.unlike(design, options)
        if unlike and not is_loopback(self._endpoint):
            listed = "; ".join(unlike.values())
            raise TargetError(
                f"table {design.name} was created, but {listed}; mend it, then `migrator table check`"
            )
        return unlike

    @contextmanager
    def _unspoken(self, operation: str) -> Iterator[None]:
        """An endpoint on this machine is an emulator, which need not know every operation."""
        try:
            yield
        except TargetError:
            if not is_loopback(self._endpoint):
                raise

    def wait(self, design: TableDesign) -> None:
        """Returns when the table and all its indexes are ACTIVE."""
        self._wait(design.name)

    def _wait(self, name: str) -> None:
        """Until the table and all its indexes are ACTIVE."""
        waited = 0.0
        while waited < _READY_S:
            description = self._describe(name) or {}
            states = {
                description.get("TableStatus"),
                *(index.get("IndexStatus", "ACTIVE") for index in _indexes(description)),
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
            answer = self._retried("describe_table", name, lambda: self.client.describe_table(TableName=name))
        except ClientError as error:
            if error_code(error) == "ResourceNotFoundException":
                return None
            raise in_words(error, "describe_table", name, self._endpoint) from None
        except BotoCoreError as error:
            raise in_words(error, "describe_table", name, self._endpoint) from None
        return dict(answer["Table"])

    def _ttl(self, name: str) -> str | None:
        """The TTL attribute, where TTL is on."""
        description = self._call("describe_time_to_live", name, {"TableName": name}).get(
            "TimeToLiveDescription", {}
        )
        return (
            description.get("AttributeName")
            if description.get("TimeToLiveStatus") in ("ENABLED", "ENABLING")
            else None
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
        return self.retry.call(what, work, partial(passes_at, self.client), partial(gave_up, what))

    @property
    def _endpoint(self) -> str:
        return str(self.client.meta.endpoint_url)


def _table_id(description: dict[str, Any]) -> str:
    return str(
        description.get("TableId") or f"{description.get('TableArn')} {description.get('CreationDateTime')}"
    )


def _indexes(description: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        *(description.get("GlobalSecondaryIndexes") or []),
        *(description.get("LocalSecondaryIndexes") or []),
    ]


def _differences(
    design: TableDesign, description: dict[str, Any], ttl: str | None
) -> Iterator[tuple[str, str]]:
    """(part, sentence): how the table differs from the mapping."""
    types = {
        definition["AttributeName"]: definition["AttributeType"]
        for definition in description.get("AttributeDefinitions", [])
    }
    wanted, there = (
        _shown_design(design.key[:1], design.key[1:]),
        _shown(description.get("KeySchema", []), types),
    )
    if wanted != there:
        yield "key", f"its key is {wanted} in the mapping and {there} in the table"
    present = {definition["IndexName"]: definition for definition in _indexes(description)}
    for index in design.indexes:
        if index.name not in present:
            yield f"index {index.name}", f"index {index.name} is missing in the table"
            continue
        yield from _index_differences(index, present.pop(index.name), types)
    for name in sorted(present):
        yield f"index {name}", _not_in_mapping(name)
    if ttl != design.ttl:
        yield "ttl", f"TTL is {_on(design.ttl)} in the mapping and {_on(ttl)} in the table"


def _extra(design: TableDesign, description: dict[str, Any]) -> Iterator[str]:
    """Indexes that no item of the mapping needs: another revision of it may. A local one bounds each item collection."""
    wanted = {index.name for index in design.indexes}
    for index in description.get("GlobalSecondaryIndexes") or []:
        if index["IndexName"] not in wanted:
            yield _not_in_mapping(index["IndexName"])


def _not_in_mapping(name: str) -> str:
    return f"index {name} is in the table and not in the mapping"


def _index_differences(
    index: Index, description: dict[str, Any], types: dict[str, str]
) -> Iterator[tuple[str, str]]:
    wanted, there = _shown_design(index.partition, index.sort), _shown(description["KeySchema"], types)
    if wanted != there:
        yield (
            f"index {index.name}",
            f"the key of index {index.name} is {wanted} in the mapping and {there} in the table",
        )
    ours, theirs = _projected(projection(index)), _projected(description.get("Projection", {}))
    if ours != theirs:
        yield (
            f"index {index.name}",
            f"index {index.name} projects {ours} in the mapping and {theirs} in the table",
        )


def _shown_design(partition: tuple[KeyAttribute, ...], sort: tuple[KeyAttribute, ...]) -> str:
    keys = [
        (attribute, kind)
        for kind, attributes in (("HASH", partition), ("RANGE", sort))
        for attribute in attributes
    ]
    return ", ".join(f"{attribute.name} ({kind} {TYPES[attribute.type]})" for attribute, kind in keys)


def _shown(schema: list[dict[str, str]], types: dict[str, str]) -> str:
    return ", ".join(
        f"{element['AttributeName']} ({element['KeyType']} {types.get(element['AttributeName'], '?')})"
        for element in schema
    )


def _projected(projected: dict[str, Any]) -> str:
    kind = str(projected.get("ProjectionType", "ALL"))
    return (
        f"INCLUDE {', '.join(sorted(projected.get('NonKeyAttributes', [])))}" if kind == "INCLUDE" else kind
    )


def _on(attribute: str | None) -> str:
    return f"on {attribute}" if attribute else "off"
