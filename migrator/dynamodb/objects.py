"""Objects in an S3 bucket, named by a digest of their bytes."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from migrator.dynamodb.failures import can_pass, denied, error_code, no_credentials
from migrator.mapping.model.edges import Probe
from migrator.runtime.errors import MigratorError, StoppedError, TargetError
from migrator.runtime.retry import Backoff, Retry
from migrator.runtime.system import Forked, tell_of_forks

_NO_BUCKET = "there is no such bucket; create it, or correct {named_by}"
_ADVICE = {
    "404": _NO_BUCKET,
    "NoSuchBucket": _NO_BUCKET,
    "PermanentRedirect": "the bucket is in another region; correct target: {{region: …}} in the job",
}
_UNKNOWN = "not tried: without s3:ListBucket S3 says 403 of every object that is not there"
_NO_KEY = ("404", "NoSuchKey", "NotFound")


class S3Objects(Forked):
    """model.edges.ObjectStore on a bucket; safe to share between threads. An object's key is the prefix and its name."""

    named_by = "target: {bucket: …} in the job"
    needed = "s3:GetObject, s3:PutObject and s3:ListBucket (without it S3 says 403 where nothing is stored)"

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
        tell_of_forks(self)

    def after_fork(self, *, in_child: bool) -> None:
        """A child that spoke on its parent's connections would read the parent's answers."""
        if in_child:
            self.client.close()

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

    def probe(self, *, write: bool) -> list[Probe]:
        """Whether the bucket can be listed, objects can be read, and with `write` put and deleted again, by an object
        under a random name."""
        name = f"migrator-doctor-{secrets.token_hex(8)}"
        listed = _probed("ListBucket", lambda: self._send("list_objects_v2", Prefix=self.prefix, MaxKeys=1))
        read = _probed("GetObject", lambda: self._ask("head_object", name))
        if "AccessDenied" in listed.refused and read.refused:
            read = Probe("GetObject", _UNKNOWN, tried=False)
        probed = [listed, read]
        if write:
            probed.append(_probed("PutObject", lambda: self._ask("put_object", name, Body=b"probe")))
            if not probed[-1].refused:
                left = f"; the object {self.prefix}{name} stays, take it away"
                probed.append(_probed("DeleteObject", lambda: self._ask("delete_object", name), left))
        return probed

    def make_bucket(self) -> None:
        """Makes the bucket where there is none: for an S3 on this machine, never for AWS."""
        region = self.client.meta.region_name
        # us-east-1 is the one region that S3 does not want to be told.
        location = (
            {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        )
        try:
            self.client.create_bucket(Bucket=self.bucket, **location)
        except ClientError as error:
            if error_code(error) not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
                raise self._in_words(error, "create_bucket") from None

    def _ask(self, operation: str, name: str, **parameters: Any) -> Any:
        """The answer, None where there is no such object."""
        try:
            return self._tried(operation, Key=f"{self.prefix}{name}", **parameters)
        except ClientError as error:
            if operation in ("head_object", "get_object") and error_code(error) in _NO_KEY:
                return None
            raise self._in_words(error, operation) from None
        except BotoCoreError as error:
            raise self._in_words(error, operation) from None

    def _send(self, operation: str, **parameters: Any) -> Any:
        """The same of the bucket itself."""
        try:
            return self._tried(operation, **parameters)
        except (ClientError, BotoCoreError) as error:
            raise self._in_words(error, operation) from None

    def _tried(
        self, operation: str, *, take: Callable[[Any], Any] = lambda answer: answer, **parameters: Any
    ) -> Any:
        """`take`: what is made of the answer, a broken stream in it being tried again."""
        method = getattr(self.client, operation)
        what = f"{operation} on bucket {self.bucket}"
        return self.retry.call(what, lambda: take(method(Bucket=self.bucket, **parameters)), can_pass)

    def _in_words(self, error: Exception, operation: str) -> MigratorError:
        if isinstance(error, NoCredentialsError):
            return no_credentials()
        code = error_code(error) if isinstance(error, ClientError) else type(error).__name__
        made = StoppedError if can_pass(error) else TargetError
        lacks = denied(error, "s3") if isinstance(error, ClientError) else ""
        known = _ADVICE.get(code, "see the S3 API reference for this error").format(named_by=self.named_by)
        advice = f"{lacks}; {self.needed} are needed" if lacks else known
        return made(f"S3 refused {operation} on bucket {self.bucket} ({code}): {advice}")


def _probed(action: str, call: Callable[[], object], left: str = "") -> Probe:
    """`left`: what a refusal leaves behind."""
    try:
        call()
    except MigratorError as error:
        return Probe(action, f"{error}{left}")
    return Probe(action)
