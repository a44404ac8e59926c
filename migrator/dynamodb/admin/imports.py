"""ImportTable: begun, followed, and its log of items that it did not take."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from migrator.dynamodb.failures import can_pass, denied, error_code, gave_up, in_words, passes_at
from migrator.mapping.model.files import ImportFault, ImportState
from migrator.runtime.retry import Backoff, Retry

LOG_GROUP = "/aws-dynamodb/imports"
"""Source: Amazon DynamoDB Developer Guide, "Validation errors" of imports from Amazon S3."""


class DynamoImports:
    """model.bulk.files.TableImports over boto3. `request`: ImportTable's parameters but for the token; `logs`: a client of
    CloudWatch Logs; `prefix`: what the names of the files begin with in the bucket, and not in the manifest."""

    def __init__(
        self,
        client: Any,
        logs: Any,
        request: dict[str, Any],
        prefix: str,
        backoff: Backoff,
        stop: Callable[[], bool],
    ) -> None:
        self.client = client
        self.logs = logs
        self.request = request
        self.prefix = prefix
        self.retry = Retry(backoff, stop)

    @property
    def table(self) -> str:
        return str(self.request["TableCreationParameters"]["TableName"])

    def begin(self, token: str) -> ImportState:
        # Sent again with the same token, it is the same import.
        return _state(self._call("import_table", {**self.request, "ClientToken": token}))

    def state(self, arn: str) -> ImportState:
        return _state(self._call("describe_import", {"ImportArn": arn}))

    def asked_with(self, token: str) -> ImportState | None:
        description = self._call("describe_table", {"TableName": self.table})
        more: dict[str, str] = {}
        while True:
            answer = self._call("list_imports", {"TableArn": description["Table"]["TableArn"], **more})
            for summary in answer.get("ImportSummaryList", []):
                state = self.state(str(summary["ImportArn"]))
                if state.token == token:
                    return state
            if not answer.get("NextToken"):
                return None
            more = {"NextToken": answer["NextToken"]}

    def faults(self, arn: str, at_most: int) -> tuple[list[ImportFault], str]:
        stream = f"{arn.rpartition('/')[2]}/error"
        try:
            return list(self._faults(stream, at_most)), ""
        except ClientError as error:
            lacks = denied(error, "logs") or error_code(error)
            return [], f"its log {LOG_GROUP}, stream {stream}, cannot be read ({lacks})"
        except BotoCoreError as error:
            return [], f"its log {LOG_GROUP}, stream {stream}, cannot be read ({type(error).__name__})"

    def _faults(self, stream: str, at_most: int) -> Iterator[ImportFault]:
        asked: dict[str, Any] = {"logGroupName": LOG_GROUP, "logStreamName": stream, "startFromHead": True}
        read = 0
        while read < at_most:
            answer = self.retry.call("its log", lambda: self.logs.get_log_events(**asked), can_pass)
            events = answer.get("events", [])[: at_most - read]
            yield from (self._fault(str(event["message"])) for event in events)
            read += len(events)
            # The last page of a stream is told by a token that stays the same.
            if not events or answer.get("nextForwardToken") in (None, asked.get("nextToken")):
                return
            asked["nextToken"] = answer["nextForwardToken"]

    def _fault(self, message: str) -> ImportFault:
        try:
            told = json.loads(message)
            place = told["itemS3Pointer"]
            name = str(place["key"]).removeprefix(self.prefix)
            return ImportFault(name, int(place["itemIndex"]), "; ".join(map(str, told["errorMessages"])))
        except (KeyError, TypeError, ValueError):
            return ImportFault("", 0, "the log of the import has a line of another form; look at it there")

    def _call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        what = f"DynamoDB {operation} for table {self.table}"

        def call() -> Any:
            return getattr(self.client, operation)(**request)

        try:
            return dict(self.retry.call(what, call, self._passes, partial(gave_up, what)))
        except (ClientError, BotoCoreError) as error:
            raise in_words(error, operation, self.table, str(self.client.meta.endpoint_url)) from None

    def _passes(self, error: BaseException) -> bool:
        # A table of that name may have come meanwhile; it does not go by waiting.
        in_use = isinstance(error, ClientError) and error_code(error) == "ResourceInUseException"
        return passes_at(self.client, error) and not in_use


def _state(answer: dict[str, Any]) -> ImportState:
    told = answer["ImportTableDescription"]
    failure = ": ".join(filter(None, (told.get("FailureCode"), told.get("FailureMessage"))))
    return ImportState(
        arn=str(told["ImportArn"]),
        table_id=str(told.get("TableId") or ""),
        token=str(told.get("ClientToken") or ""),
        status=told["ImportStatus"],
        processed=int(told.get("ProcessedItemCount") or 0),
        imported=int(told.get("ImportedItemCount") or 0),
        errors=int(told.get("ErrorCount") or 0),
        failure=failure,
    )
