"""S3 objects: attributes that a mapping stores there, exported items (also in a folder), and the import of these."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from errno import EDQUOT, ENOSPC
from functools import partial
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from migrator.dynamodb.failures import (
    can_pass,
    denied,
    error_code,
    passes_at,
    retried,
    without_credentials,
)
from migrator.mapping.model.edges import ActionProbe, ImportFault, ImportState
from migrator.runtime.errors import MigratorError, SettingsError, StoppedError, TargetError, amount
from migrator.runtime.retry import Backoff, Retry
from migrator.runtime.system import FILE_MODE, make_folder

_NO_BUCKET = "bucket not found; create it, or correct {named_by}"
_ADVICE = {
    "404": _NO_BUCKET,
    "NoSuchBucket": _NO_BUCKET,
    "PermanentRedirect": "the bucket is in another region; correct target: {{region: …}} in the job",
}
_UNKNOWN = "not tried: without s3:ListBucket S3 answers 403 for missing objects"
_NO_KEY = ("404", "NoSuchKey", "NotFound")


class S3Objects:
    """Objects in a bucket. Thread-safe. Keys are the prefix and the object's name."""

    named_by = "target: {bucket: …} in the job"
    needed = "s3:GetObject, s3:PutObject and s3:ListBucket (without it S3 answers 403 for missing objects)"

    def __init__(
        self,
        client: Any,
        bucket: str,
        prefix: str,
        backoff: Backoff | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.client = client
        self.bucket = bucket
        self.prefix = prefix
        self.retry = Retry(backoff or Backoff(), stop)

    def put(self, objects: Mapping[str, bytes]) -> None:
        there = self.sizes(list(objects))
        for name, data in objects.items():
            if there.get(name) != len(data):
                self._ask("put_object", name, Body=data)

    def sizes(self, names: Sequence[str]) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for name in names:
            head = self._ask("head_object", name)
            if head is not None:
                sizes[name] = int(head["ContentLength"])
        return sizes

    def probe(self, *, write: bool) -> list[ActionProbe]:
        name = f"migrator-doctor-{secrets.token_hex(8)}"
        listed = _probed("ListBucket", lambda: self._send("list_objects_v2", Prefix=self.prefix, MaxKeys=1))
        read = _probed("GetObject", lambda: self._ask("head_object", name))
        if "AccessDenied" in listed.refused and read.refused:
            read = ActionProbe("GetObject", _UNKNOWN, tried=False)
        probed = [listed, read]
        if write:
            probed.append(_probed("PutObject", lambda: self._ask("put_object", name, Body=b"probe")))
            if not probed[-1].refused:
                left = f"; the object {self.prefix}{name} stays, take it away"
                probed.append(_probed("DeleteObject", lambda: self._ask("delete_object", name), left))
        return probed

    def make_bucket(self) -> None:
        """Create the bucket if it does not exist: for an S3 on this machine, never on AWS."""
        region = self.client.meta.region_name
        # S3 rejects us-east-1 as a location constraint: it is the default.
        location = (
            {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        )
        try:
            self.client.create_bucket(Bucket=self.bucket, **location)
        except ClientError as error:
            if error_code(error) not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
                raise self._in_words(error, "create_bucket") from None

    def _ask(self, operation: str, name: str, **parameters: Any) -> Any:
        return self._send(operation, Key=f"{self.prefix}{name}", **parameters)

    def _send(self, operation: str, **parameters: Any) -> Any:
        try:
            return self._tried(operation, **parameters)
        except (ClientError, BotoCoreError) as error:
            if operation in ("head_object", "get_object") and error_code(error) in _NO_KEY:
                return None
            raise self._in_words(error, operation) from None

    def _tried(
        self, operation: str, *, take: Callable[[Any], Any] = lambda answer: answer, **parameters: Any
    ) -> Any:
        """`take`: parses the answer; a stream that breaks in it is retried."""
        method = getattr(self.client, operation)
        what = f"{operation} on bucket {self.bucket}"
        return self.retry.call(what, lambda: take(method(Bucket=self.bucket, **parameters)), can_pass)

    def _in_words(self, error: Exception, operation: str) -> MigratorError:
        if of_credentials := without_credentials(error):
            return of_credentials
        code = error_code(error) or type(error).__name__
        made = StoppedError if can_pass(error) else TargetError
        lacks = denied(error, "s3") if isinstance(error, ClientError) else ""
        known = _ADVICE.get(code, "see the S3 API reference for this error").format(named_by=self.named_by)
        advice = f"{lacks}; {self.needed} are needed" if lacks else known
        return made(f"S3 refused {operation} on bucket {self.bucket} ({code}): {advice}")


def _probed(action: str, call: Callable[[], object], left: str = "") -> ActionProbe:
    try:
        call()
    except MigratorError as error:
        return ActionProbe(action, f"{error}{left}")
    return ActionProbe(action)


_UNFINISHED = ".unfinished"
"""Suffix of a file's name until it is complete."""
_AT_ONCE = 1000
"""Objects per DeleteObjects. Source: Amazon S3 API reference, DeleteObjects."""


class FolderFiles:
    """Files in a folder, created by the first write. Only the owner may read them: they contain rows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def name(self) -> str:
        return str(self.folder)

    def write(self, name: str, data: bytes) -> None:
        path = self.folder / name
        unfinished = path.with_name(path.name + _UNFINISHED)
        with self._in_words("written"):
            make_folder(path.parent)
            with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE), "wb") as file:
                file.write(data)
                file.flush()
                # From here on its page counts as done: the file must survive a power cut, complete.
                os.fsync(file.fileno())
            os.replace(unfinished, path)

    def read(self, name: str) -> bytes | None:
        with self._in_words("read"), suppress(FileNotFoundError, NotADirectoryError):
            return (self.folder / name).read_bytes()
        return None

    def sizes_below(self, below: str = "") -> dict[str, int]:
        with self._in_words("read"):
            return {
                name: path.stat().st_size
                for path in self.folder.rglob("*")
                if path.is_file()
                and (name := path.relative_to(self.folder).as_posix()).startswith(below)
                and not name.endswith(_UNFINISHED)
            }

    def remove(self, names: Collection[str]) -> None:
        with self._in_words("written"):
            for name in names:
                (self.folder / name).unlink(missing_ok=True)
            for folder in sorted({(self.folder / name).parent for name in names}, reverse=True):
                self._remove_empty(folder)

    def _remove_empty(self, folder: Path) -> None:
        while folder != self.folder:
            try:
                folder.rmdir()
            except OSError:  # something else is in it
                return
            folder = folder.parent

    @contextmanager
    def _in_words(self, done: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            what = f"{self.folder} cannot be {done} ({error.strerror})"
            if error.errno in (ENOSPC, EDQUOT):
                raise StoppedError(f"{what}; make room, and run the same command again") from None
            raise SettingsError(f"{what}; name another folder") from None


class S3Files(S3Objects):
    named_by = "the address s3://… in the command"
    needed = "s3:ListBucket, s3:GetObject, s3:PutObject and s3:DeleteObject"

    @property
    def name(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    def write(self, name: str, data: bytes) -> None:
        self._ask("put_object", name, Body=data)

    def read(self, name: str) -> bytes | None:
        data: bytes | None = self._ask("get_object", name, take=lambda answer: answer["Body"].read())
        return data

    def sizes_below(self, below: str = "") -> dict[str, int]:
        prefix, sizes = f"{self.prefix}{below}", dict[str, int]()
        more: dict[str, str] = {}
        while True:
            answer = self._send("list_objects_v2", Prefix=prefix, **more)
            for entry in answer.get("Contents", []):
                sizes[str(entry["Key"]).removeprefix(self.prefix)] = int(entry["Size"])
            if not answer.get("IsTruncated"):
                return sizes
            more = {"ContinuationToken": answer["NextContinuationToken"]}

    def remove(self, names: Collection[str]) -> None:
        keys = [{"Key": f"{self.prefix}{name}"} for name in sorted(names)]
        for first in range(0, len(keys), _AT_ONCE):
            chosen = keys[first : first + _AT_ONCE]
            answer = self._send("delete_objects", Delete={"Objects": chosen, "Quiet": True})
            if errors := answer.get("Errors"):
                what = f"S3 did not delete {amount(len(errors), 'object')} of {self.name} ({errors[0].get('Code')})"
                raise StoppedError(f"{what}; allow s3:DeleteObject, and run the same command again")


LOG_GROUP = "/aws-dynamodb/imports"
"""Source: Amazon DynamoDB Developer Guide, "Validation errors" of imports from Amazon S3."""


class DynamoImports:
    """Imports by boto3.

    `request`: ImportTable's parameters without the token.
    `logs`: client of CloudWatch Logs.
    `prefix`: of file names in the bucket, not in the manifest.
    """

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
        # A retry with the same token is the same import.
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
            # An unchanged token marks a stream's last page.
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
        call = partial(getattr(self.client, operation), **request)
        return dict(retried(self.client, self.retry, operation, self.table, call, _passes))


def _passes(client: Any, error: BaseException) -> bool:
    # A table of that name may exist by now; waiting does not help.
    return passes_at(client, error) and error_code(error) != "ResourceInUseException"


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
