"""Create, compare and change the table, and probe which actions the credentials may use."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, TypeAlias

from botocore.exceptions import BotoCoreError, ClientError

from migrator.dynamodb.client import is_loopback
from migrator.dynamodb.control import control_key
from migrator.dynamodb.failures import error_code, in_words, may_have_worked, retried
from migrator.mapping.items.wire import encode
from migrator.mapping.model.edges import ActionProbe, TableState
from migrator.mapping.model.table import Index, KeyAttribute, TableDesign, Value
from migrator.runtime.errors import Interrupted, StoppedError, TargetError
from migrator.runtime.retry import Backoff, Result, Retry
from migrator.runtime.values import replace
from migrator.settings.definition import (
    IndexChanges,
    addition,
    creation_request,
    extra_indexes,
    index_changes,
    indexes_of,
    later_requests,
    option_differences,
    removal,
    requests_after_import,
    table_differences,
    unsettled,
    wanted_answers,
)
from migrator.settings.job import TableOptions
from migrator.settings.roles import Rights

_What: TypeAlias = tuple[str, str]
"""An action, and the index it is probed on ('' for the table)."""


def probes(client: Any, design: TableDesign, *, write: bool, only: Rights | None = None) -> list[ActionProbe]:
    """One probe per action. `only`: a role's rights; each then has a probe, even one that cannot be tried."""
    key = {attribute.name: _absent_value(attribute) for attribute in design.key}
    writes = _writes(client, design, key)
    calls = _reads(client, design, key) | (writes if write else {})
    if only is not None:
        calls |= _of_definitions(client, design)
        # DynamoDB rejects CreateTable for an existing table with another error if the caller may create tables.
        calls |= {_CREATE: lambda: client.create_table(**creation_request(design))} if write else {}
        calls = {what: call for what, call in calls.items() if what in only.named()}
    probed = [_probe(client, design.name, what, call) for what, call in calls.items()]
    if write and (only is None or _INSERT in only.table):
        may_delete = any(probe.action == "DeleteItem" and not probe.refused for probe in probed)
        probed.append(_probe_insert(client, design, key, may_delete=may_delete))
    left = set() if only is None else {*only.named()} - {(probe.action, probe.index) for probe in probed}
    for action, index in sorted(left):
        with_write = not write and (action == _INSERT or (action, index) in {*writes, _CREATE})
        why = (
            "not tried without --write"
            if with_write
            else "not tried: it would change the table, or nothing is there to try it on"
        )
        probed.append(ActionProbe(action, why, index, tried=False))
    return probed


def clock_of(client: Any, design: TableDesign) -> float | None:
    answer = client.describe_table(TableName=design.name)
    date = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
    return None if date is None else parsedate_to_datetime(date).timestamp()


def _absent_value(attribute: KeyAttribute) -> dict[str, Any]:
    chance = secrets.token_hex(8)
    values: dict[str, Value] = {
        "text": f"migrator-doctor-{chance}",
        "number": -(10**30) - int(chance, 16),
        "binary": f"migrator-doctor-{chance}".encode(),
    }
    return encode(values[attribute.type])


def _reads(client: Any, design: TableDesign, key: dict[str, Any]) -> dict[_What, Callable[[], Any]]:
    table = {"TableName": design.name}
    queries = [partial(client.query, **table, **_absent_partition(design.key[:1]))]
    queries += [
        partial(client.query, **table, IndexName=index.name, **_absent_partition(index.partition))
        for index in design.indexes
    ]
    # An index has its own ARN, so a policy may leave it out.
    named = [("Query", index) for index in ("", *(index.name for index in design.indexes))]
    return {
        ("DescribeTimeToLive", ""): lambda: client.describe_time_to_live(**table),
        ("GetItem", ""): lambda: client.get_item(**table, Key=key),
        **dict(zip(named, queries, strict=True)),
        ("BatchGetItem", ""): lambda: client.batch_get_item(RequestItems={design.name: {"Keys": [key]}}),
        ("Scan", ""): lambda: client.scan(**table, Limit=1),
    }


def _absent_partition(attributes: Sequence[KeyAttribute]) -> dict[str, Any]:
    numbered = list(enumerate(attributes))
    return {
        "KeyConditionExpression": " AND ".join(f"#k{number} = :k{number}" for number, _ in numbered),
        "ExpressionAttributeNames": {f"#k{number}": attribute.name for number, attribute in numbered},
        "ExpressionAttributeValues": {
            f":k{number}": _absent_value(attribute) for number, attribute in numbered
        },
    }


def _writes(client: Any, design: TableDesign, key: dict[str, Any]) -> dict[_What, Callable[[], Any]]:
    delete = {"DeleteRequest": {"Key": key}}
    table, source = {"TableName": design.name}, design.source_attribute
    names = {"#k": design.key[0].name}
    exists = {"ConditionExpression": "attribute_exists(#k)", "ExpressionAttributeNames": names}
    update = {
        **exists,
        "ExpressionAttributeNames": {**names, "#own": source},
        "UpdateExpression": "REMOVE #own",
    }
    return {
        ("BatchWriteItem", ""): lambda: client.batch_write_item(RequestItems={design.name: [delete]}),
        ("PutItem", ""): lambda: client.put_item(**table, Item=key, **exists),
        ("DeleteItem", ""): lambda: client.delete_item(**table, Key=key, **exists),
        ("UpdateItem", ""): lambda: client.update_item(**table, Key=key, **update),
    }


_CREATE: _What = ("CreateTable", "")


def _of_definitions(client: Any, design: TableDesign) -> dict[_What, Callable[[], Any]]:
    table = {"TableName": design.name}

    def tags() -> None:
        arn = client.describe_table(**table)["Table"]["TableArn"]
        client.list_tags_of_resource(ResourceArn=arn)

    return {
        ("DescribeTable", ""): lambda: client.describe_table(**table),
        ("DescribeContinuousBackups", ""): lambda: client.describe_continuous_backups(**table),
        ("DescribeContributorInsights", ""): lambda: client.describe_contributor_insights(**table),
        ("ListTagsOfResource", ""): tags,
    }


_INSERT = "PartiQLInsert"
_NOT_TRIED = "not tried: without DeleteItem the item of the probe would stay"


def _probe_insert(client: Any, design: TableDesign, key: dict[str, Any], *, may_delete: bool) -> ActionProbe:
    """PartiQL's INSERT has no condition but fails if the item exists: the control item, if there is one.

    Otherwise a random key is written, and deleted after every answer.
    """
    own = {name: encode(value) for name, value in control_key(design).items()}
    try:
        is_there = "Item" in client.get_item(TableName=design.name, Key=own, ConsistentRead=True)
    except (ClientError, BotoCoreError):
        is_there = False
    if is_there:
        return _probe(client, design.name, (_INSERT, ""), lambda: _insert(client, design, own))
    if not may_delete:
        return ActionProbe(_INSERT, _NOT_TRIED, tried=False)

    def call() -> None:
        try:
            _insert(client, design, key)
        finally:
            client.delete_item(TableName=design.name, Key=key)

    return _probe(client, design.name, (_INSERT, ""), call)


def _insert(client: Any, design: TableDesign, key: dict[str, Any]) -> None:
    names = ", ".join(f"'{attribute.name}': ?" for attribute in design.key)
    statement = {
        "Statement": f'INSERT INTO "{design.name}" VALUE {{{names}}}',
        "Parameters": list(key.values()),
    }
    for response in client.batch_execute_statement(Statements=[statement])["Responses"]:
        if error := response.get("Error"):
            # Counts as a rejected answer.
            refusal = {"Error": {"Code": f"{error['Code']}Exception", "Message": error.get("Message", "")}}
            raise ClientError(refusal, _INSERT)


_MAY = frozenset({"ConditionalCheckFailedException", "DuplicateItemException", "ResourceInUseException"})
"""Errors that only a permitted caller gets."""


def _probe(client: Any, table: str, what: _What, call: Callable[[], Any]) -> ActionProbe:
    action, index = what
    try:
        call()
    except (ClientError, BotoCoreError) as error:
        if error_code(error) not in _MAY:
            return ActionProbe(action, str(in_words(error, action, table, client.meta.endpoint_url)), index)
    return ActionProbe(action, index=index)


_READY_S = 300.0
_POLL_S = 2.0
_SAID_AGAIN_S = 60.0
Tell = Callable[[str], None]
_FIRST_CALL = Backoff(attempts=4, base_s=0.1, cap_s=1.0, limit_s=10.0)


class DynamoTableAdmin:
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
        differences = list(table_differences(design, description, ttl))
        return TableState(
            _table_id(description),
            str(description["TableStatus"]),
            tuple(sentence for _, sentence in differences),
            parts=tuple(part for part, _ in differences),
            extra=tuple(extra_indexes(design, description)),
        )

    def existing(self, design: TableDesign) -> str:
        """The existing table's id. Raises: TargetError unless it fits the design."""
        state, name = self.state(design), design.name
        if state is None:
            raise TargetError(f"table {name} not found; run `migrator table create` with this job file")
        wrong = [sentence for sentence in state.differences if sentence not in state.extra]
        if wrong:
            what = f"table {name} is not the mapping's: {'; '.join(wrong)}"
            raise TargetError(f"{what}. Fix one of the two, or name another table in the job")
        return state.table_id

    def create(self, design: TableDesign, options: TableOptions | None = None) -> TableState:
        if self._describe(design.name) is not None:
            raise TargetError(
                f"table {design.name} exists already; `migrator table check` prints whether it fits"
            )
        name = design.name
        self._change("create_table", name, creation_request(design, options), lambda: self._describe(name))
        self.wait(design)
        return self._finished(design, options)

    def finish_import(self, design: TableDesign, options: TableOptions) -> TableState:
        self.wait(design)
        arn = str((self._describe(design.name) or {}).get("TableArn"))
        missing = self.unlike(design, options)
        for operation, request in requests_after_import(design, options, arn, missing):
            with self._unspoken(operation):
                self._call(operation, design.name, request)
            self.wait(design)
        return self._finished(design, options)

    def _finished(self, design: TableDesign, options: TableOptions | None) -> TableState:
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
        """Index changes from an existing table with the design's key. Raises: TargetError."""
        description = self._describe(design.name)
        if description is None:
            raise TargetError(
                f"table {design.name} not found; run `migrator table create` with this job file"
            )
        if any(part == "key" for part, _ in table_differences(design, description, design.ttl)):
            what = f"table {design.name} has another key than the mapping, and the key of a table cannot be altered"
            raise TargetError(f"{what}; name another table in the job")
        return index_changes(design, description)

    def add_index(self, design: TableDesign, index: Index, options: TableOptions, tell: Tell) -> None:
        """Add an index and wait until it is filled. `tell`: called with progress. Raises: Interrupted,
        TargetError.
        """
        self.settle(design, tell)
        request = addition(design, index, options)
        self._change("update_table", design.name, request, lambda: self._has_index(design.name, index.name))
        self.settle(design, tell, lambda names: index.name in names)

    def remove_index(self, design: TableDesign, name: str, tell: Tell) -> None:
        """Remove an index and wait until it is gone. Raises: as add_index."""
        self.settle(design, tell)
        if self._has_index(design.name, name):
            request = removal(design, name)
            self._change("update_table", design.name, request, lambda: not self._stays(design.name, name))
        self.settle(design, tell, lambda names: name not in names)

    def settle(
        self, design: TableDesign, tell: Tell, shows: Callable[[Collection[str]], bool] = lambda names: True
    ) -> None:
        """Wait, without a time limit, until no index is being created or removed, and the names of the indexes are
        what `shows` takes: DescribeTable may lag behind an UpdateTable. `tell`: called with each new state, and
        every minute. Raises: Interrupted, TargetError.
        """
        said, said_at, late_s = "", 0.0, 0.0
        while True:
            description = self._describe(design.name)
            if description is None:
                raise TargetError(f"table {design.name} no longer exists; find out what deletes it")
            state = "; ".join(unsettled(description))
            if not state and shows({index["IndexName"] for index in indexes_of(description)}):
                return
            if not state:
                state, late_s = "DescribeTable does not yet show the change", late_s + _POLL_S
            if late_s > _READY_S:
                what = f"table {design.name}: an index that was changed is not as it was left"
                raise TargetError(
                    f"{what}; find out what else changes its indexes, then run this command again"
                )
            if state != said or time.monotonic() - said_at >= _SAID_AGAIN_S:
                said, said_at = state, time.monotonic()
                tell(state)
            if self.retry.stop():
                raise Interrupted(
                    f"stopped while {state}; DynamoDB continues, and the same command waits for it"
                )
            self.sleep(_POLL_S)

    def _has_index(self, table: str, name: str) -> bool:
        return any(index["IndexName"] == name for index in indexes_of(self._describe(table) or {}))

    def _stays(self, table: str, name: str) -> bool:
        return any(
            index["IndexName"] == name and index.get("IndexStatus") != "DELETING"
            for index in indexes_of(self._describe(table) or {})
        )

    def probe(self, design: TableDesign, *, write: bool, only: Rights | None = None) -> list[ActionProbe]:
        return probes(self.client, design, write=write, only=only)

    def clock(self, design: TableDesign) -> float | None:
        try:
            return clock_of(self.client, design)
        except (ClientError, BotoCoreError) as error:
            raise in_words(error, "describe_table", design.name, self._endpoint) from None

    def _set_options(self, design: TableDesign, options: TableOptions) -> dict[str, str]:
        """Return options that still differ, possible on an emulator only. Raises: TargetError on AWS."""
        only = replace(design, ttl=None)
        for operation, request in later_requests(only, options):
            with self._unspoken(operation):
                self._call(operation, design.name, request)
        unlike = self.unlike(design, options)
        if unlike and not is_loopback(self._endpoint):
            listed = "; ".join(unlike.values())
            raise TargetError(
                f"table {design.name} was created, but {listed}; fix it, then `migrator table check`"
            )
        return unlike

    @contextmanager
    def _unspoken(self, operation: str) -> Iterator[None]:
        """Ignore an operation that an emulator (a loopback endpoint) does not know."""
        try:
            yield
        except TargetError:
            if not is_loopback(self._endpoint):
                raise

    def wait(self, design: TableDesign) -> None:
        waited = 0.0
        while waited < _READY_S:
            description = self._describe(design.name) or {}
            states = {
                description.get("TableStatus"),
                *(index.get("IndexStatus", "ACTIVE") for index in indexes_of(description)),
            }
            if states == {"ACTIVE"}:
                return
            self.sleep(0.5)
            waited += 0.5
        raise StoppedError(
            f"table {design.name} is not ready after {_READY_S:.0f} s; `migrator table check` prints when it is"
        )

    def _describe(self, name: str) -> dict[str, Any] | None:
        def described() -> dict[str, Any] | None:
            try:
                return dict(self.client.describe_table(TableName=name)["Table"])
            except self.client.exceptions.ResourceNotFoundException:
                return None

        return self._retried("describe_table", name, described)

    def _ttl(self, name: str) -> str | None:
        description = self._call("describe_time_to_live", name, {"TableName": name}).get(
            "TimeToLiveDescription", {}
        )
        return (
            description.get("AttributeName")
            if description.get("TimeToLiveStatus") in ("ENABLED", "ENABLING")
            else None
        )

    def _call(self, operation: str, table: str, request: dict[str, Any]) -> dict[str, Any]:
        return dict(self._retried(operation, table, lambda: getattr(self.client, operation)(**request)))

    def _change(
        self, operation: str, table: str, request: dict[str, Any], is_there: Callable[[], object]
    ) -> None:
        """Like _call; a retry after a lost answer may fail because the request has taken effect."""
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

        self._retried(operation, table, once)

    def _retried(self, operation: str, table: str, work: Callable[[], Result]) -> Result:
        return retried(self.client, self.retry, operation, table, work)

    @property
    def _endpoint(self) -> str:
        return str(self.client.meta.endpoint_url)


def _table_id(description: dict[str, Any]) -> str:
    return str(
        description.get("TableId") or f"{description.get('TableArn')} {description.get('CreationDateTime')}"
    )
