"""`migrator doctor --probe`: makes a table, tries every assumption on it, and deletes it."""

from __future__ import annotations

import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

from migrator.cli.command_line import print_json
from migrator.cli.options import need_yes, print_folded, say, stdout, stop_on_signals
from migrator.cli.tables import table_of
from migrator.features.probe.assumptions import (
    ASSUMPTIONS,
    INDEX,
    MOST_REQUESTS,
    Bucket,
    ExhaustedError,
    Probe,
    Result,
    result_of,
)
from migrator.runtime.errors import CLEAN, DIFFERENT, Interrupted, SettingsError, StoppedError
from migrator.settings.job import Job
from migrator.stages.session.job import client_of, own_words, read_job

MOST_S = 600
_DELETE_TRIES, _DELETE_WAIT_S = 30, 2.0
_COSTS = (
    f"the probe makes a table of its own, sends at most {MOST_REQUESTS:,} requests within {MOST_S // 60} minutes, and"
    " deletes the table; on AWS it costs less than one US dollar"
)
_IMPORTS = "; it puts an object into the bucket, imports it into a second table, and deletes both"


def probe(job: Path, *, bucket: str | None, yes: bool, as_json: bool) -> int:
    """The exit code of `migrator doctor --probe`. `bucket`: where a file may be put for an import, as s3://bucket/prefix."""
    read = read_job(job, asks_source=False)
    place = _place(bucket) if bucket is not None else None
    say(_COSTS + (_IMPORTS if place else ""))
    if read.target.endpoint is None and not yes:
        if not sys.stdin.isatty():
            raise SettingsError("the probe makes a table on AWS, and no terminal to ask at; say --yes")
        need_yes("make this table?")
    client, streams = client_of(read, "dynamodb"), client_of(read, "dynamodbstreams")
    with stop_on_signals() as stop, own_words(client, "migrator-probe-…"), _table(client, stop) as name:
        probing = Probe(client, streams, name, lambda wait_s: _wait(stop, wait_s))
        _give_edges(probing, read, place)
        with _without_import(probing):
            results = list(_results(probing, stop))
    differing = [result for result in results if result.state == "differs"]
    if as_json:
        print_json(
            {
                "requests": probing.sent,
                "assumptions": [
                    {
                        "assumption": result.assumption.name,
                        "expected": result.assumption.expected,
                        "seen": result.seen,
                        "state": result.state,
                    }
                    for result in results
                ],
            }
        )
        return DIFFERENT if differing else CLEAN
    _print(results)
    counts = Counter(result.state for result in results)
    print_folded(
        f"{counts['holds']} of {len(results)} assumptions hold, {len(differing)} differ, {counts['not there']} are not"
        f" offered here, {counts['not tried']} were not tried; {probing.sent} requests"
    )
    return DIFFERENT if differing else CLEAN


def _place(bucket: str) -> tuple[str, str]:
    """The bucket's name, and the prefix in it. Raises: SettingsError."""
    scheme, _, path = bucket.partition("://")
    name, _, prefix = path.strip("/").partition("/")
    if scheme != "s3" or not name:
        raise SettingsError(f"--to {bucket} does not name a bucket; write s3://bucket/prefix")
    return name, f"{prefix}/" if prefix else ""


def _give_edges(probing: Probe, job: Job, place: tuple[str, str] | None) -> None:
    """What only some assumptions need: the bucket for an import, and the job's role, held to a policy."""
    probing.local = job.target.endpoint is not None
    if job.target.role_arn is not None:
        probing.acting = lambda policy: client_of(job, "dynamodb", policy)
    if place is not None:
        name, prefix = place
        probing.bucket = Bucket(client_of(job, "s3"), name, f"{prefix}{probing.table}.json.gz")


@contextmanager
def _without_import(probing: Probe) -> Iterator[None]:
    """What an import made and was made of is deleted however the block ends."""
    try:
        yield
    finally:
        if probing.begun:
            _delete(probing.client, probing.imported)
        if (bucket := probing.bucket) is not None and probing.is_put:
            bucket.client.delete_object(Bucket=bucket.name, Key=bucket.key)


def _results(probing: Probe, stop: Event) -> Iterator[Result]:
    ends_at = time.monotonic() + MOST_S
    for assumption in ASSUMPTIONS:
        if time.monotonic() > ends_at:
            raise StoppedError(f"the probe ended at its bound of {MOST_S // 60} minutes")
        if stop.is_set():
            raise Interrupted("stopped; the table of the probe is deleted")
        try:
            yield result_of(assumption, probing)
        except ExhaustedError:
            raise StoppedError(f"the probe ended at its bound of {MOST_REQUESTS} requests") from None


def _wait(stop: Event, wait_s: float) -> None:
    if stop.wait(wait_s):
        raise Interrupted("stopped; the table of the probe is deleted")


@contextmanager
def _table(client: Any, stop: Event) -> Iterator[str]:
    """Deleted however the block ends."""
    name = f"migrator-probe-{secrets.token_hex(6)}"
    attributes = [{"AttributeName": one, "AttributeType": "S"} for one in ("pk", "sk", "gpk")]
    client.create_table(
        TableName=name,
        AttributeDefinitions=attributes,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        GlobalSecondaryIndexes=[
            {
                "IndexName": INDEX,
                "KeySchema": [{"AttributeName": "gpk", "KeyType": "HASH"}],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )
    try:
        while client.describe_table(TableName=name)["Table"]["TableStatus"] != "ACTIVE":
            _wait(stop, 0.5)
        yield name
    finally:
        _delete(client, name)


def _delete(client: Any, name: str) -> None:
    """DynamoDB deletes no table that is still being made. Raises: what the last try raises, after the name is printed."""
    for _ in range(_DELETE_TRIES):
        try:
            client.delete_table(TableName=name)
            return
        except client.exceptions.ResourceInUseException:
            time.sleep(_DELETE_WAIT_S)
    say(f"warning: table {name} is not deleted yet; delete it")
    client.delete_table(TableName=name)


def _print(results: list[Result]) -> None:
    rows = (
        (one.state, one.assumption.name, one.assumption.expected, "" if one.state == "holds" else one.seen)
        for one in results
    )
    stdout().print(table_of(("", "assumption", "expected", "seen"), rows))
