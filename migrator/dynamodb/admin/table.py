"""A mapping's table in DynamoDB: created, and compared with its design."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from migrator.dynamodb.admin.probes import clock_of, probes
from migrator.dynamodb.client import is_loopback
from migrator.dynamodb.failures import error_code, gave_up, in_words, may_have_worked, passes_at
from migrator.mapping.model.edges import Probe, TableState
from migrator.mapping.model.table import Index, TableDesign
from migrator.runtime.errors import Interrupted, StoppedError, TargetError
from migrator.runtime.retry import Backoff, Retry
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
from migrator.settings.roles import TableRights
from migrator.settings.source import TableOptions

_READY_S = 300.0
_POLL_S = 2.0
_SAID_AGAIN_S = 60.0
Tell = Callable[[str], None]
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
        differences = list(table_differences(design, description, ttl))
        return TableState(
            _table_id(description),
            str(description["TableStatus"]),
            tuple(sentence for _, sentence in differences),
            parts=tuple(part for part, _ in differences),
            extra=tuple(extra_indexes(design, description)),
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
        if any(part == "key" for part, _ in table_differences(design, description, design.ttl)):
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
        """Waits until no index is made or removed, as long as DynamoDB takes. `tell`: called with each new state, and
        every minute. Raises: Interrupted, TargetError."""
        said, said_at = "", 0.0
        while True:
            description = self._describe(name)
            if description is None:
                raise TargetError(f"there is no table {name} any more; find out what deletes it")
            state = "; ".join(unsettled(description))
            if not state:
                return
            if state != said or time.monotonic() - said_at >= _SAID_AGAIN_S:
                said, said_at = state, time.monotonic()
                tell(state)
            if self.retry.stop():
                raise Interrupted(
                    f"stopped while {state}; DynamoDB goes on by itself, and the same command waits for it"
                )
            self.sleep(_POLL_S)

    def _has_index(self, table: str, name: str) -> bool:
        return any(index["IndexName"] == name for index in indexes_of(self._describe(table) or {}))

    def _stays(self, table: str, name: str) -> bool:
        """Whether the index is there, and nothing removes it."""
        return any(
            index["IndexName"] == name and index.get("IndexStatus") != "DELETING"
            for index in indexes_of(self._describe(table) or {})
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
                *(index.get("IndexStatus", "ACTIVE") for index in indexes_of(description)),
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
