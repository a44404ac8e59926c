"""Each role's commands with exactly the rights that `migrator export --as iam` gives it, and with each of them taken away.

Every right is tried that the embedded server asks for; tests/nightly/exports/acting.py says which it does not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import boto3
import pytest

from migrator.dynamodb.objects import DynamoImports
from migrator.runtime.retry import Backoff
from tests.nightly.exports.acting import (
    ITEMS,
    ROOT,
    Acting,
    Right,
    acting,
    asked_by_the_server,
    prepared,
    refused_alone,
)

# One worker starts the endpoint once.
pytestmark = pytest.mark.xdist_group("iam")

SCRIPTS: Mapping[str, Sequence[str]] = {
    "deploy": (
        *("table create JOB", "table check JOB"),
        *("GROW", "table change JOB", "SHRINK", "table change JOB --yes"),
    ),
    "import": (
        "-q table export JOB --to PLACE --restart",
        "-q table import JOB --from PLACE",
    ),
    "backfill": ("-q backfill JOB", "RELAY", "-q backfill JOB --restart"),
    "relay": ("-q relay JOB --once",),
    "verify": (
        *("-q verify JOB --settle 0", "-q verify JOB --repair --settle 0"),
        *("EPOCH", "-q verify JOB --repair --settle 0"),
    ),
    "reverse": (
        *("reverse check JOB", "DIRECT", "-q reverse start JOB --once --settle 0s"),
        *("reverse status JOB", "reverse verify JOB --settle 0s", "reverse stop JOB"),
    ),
    "report": ("status JOB", "report JOB", "cutover status JOB", "status JOB --findings"),
    "operator": (
        "-q shadow replay JOB --sample 3 --settle 0",
        "look JOB --pattern customer_by_id -p id=3",
        "look JOB --pattern invoices_by_total -p total=5",
        "look JOB --pk C#3",
        "-q clean JOB --tombstones",
        "cutover status JOB",
        "cutover advance JOB customer_by_id",
        "cutover ramp JOB customer_by_id 10 --override tried",
        "cutover advance JOB customer_by_id --override tried",
        "cutover rollback JOB customer_by_id",
        "clean JOB --row --entity customer --key 2 --yes --force",
        "-q clean JOB --all-items --yes",
        "FILL",
        "COMPLETE",
        "decommission check JOB",
        "clean JOB --attributes --yes",
    ),
}
"""The commands of a role."""
FILLED = ("table create", "capture install", "backfill")
BEFORE: Mapping[str, Sequence[str]] = {
    "deploy": (),
    "import": ("capture install", "LEFT"),
    "backfill": ("table create", "capture install"),
    "relay": FILLED,
    "verify": FILLED,
    "reverse": ("STREAM", *FILLED),
    "report": (*FILLED, "SPOIL"),
    "operator": FILLED,
}
"""What others did before; then rows change."""


@pytest.mark.parametrize("role", sorted(SCRIPTS))
def test_a_role_needs_each_of_its_rights_and_no_other(role: str, auth_dynamodb: str, tmp_path: Path) -> None:
    rights: list[Right] = []
    with _ready(tmp_path / "whole", auth_dynamodb, role) as one:
        rights += [right for right in one.rights(role) if asked_by_the_server(role, right)]
        assert _played(one, role, None) == ""
    for number, without in enumerate(rights):
        with _ready(tmp_path / str(number), auth_dynamodb, role) as one:
            failed = _played(one, role, without)
        assert refused_alone(failed, without), f"{role} without {without}: {failed}"


@contextmanager
def _ready(folder: Path, endpoint: str, role: str) -> Iterator[Acting]:
    folder.mkdir()
    with acting(folder, endpoint) as one:
        prepared(one, BEFORE[role])
        yield one


def _played(one: Acting, role: str, without: Right | None) -> str:
    """What the role's commands were refused without that right; the doctor has named it, and no other."""
    one.may(role, but=without)
    failed = one.run(SCRIPTS[role])
    if role in ("deploy", "import") and failed:
        made_whole(one)
    one.check_doctor(role, without)
    return failed


def made_whole(one: Acting) -> None:
    """The table that a role could not make, or left without its options, as the mapping has it."""
    client = boto3.client("dynamodb", endpoint_url=one.made.endpoint, **ROOT)
    if one.made.table in client.list_tables()["TableNames"]:
        client.delete_table(TableName=one.made.table)
    with one.as_root():
        one.made.done("table", "create", str(one.made.job))


def test_log_of_an_import_needs_its_own_right(auth_dynamodb: str, tmp_path: Path) -> None:
    right = Right("Logs", "logs:GetLogEvents")
    with acting(tmp_path, auth_dynamodb) as one:
        arn = refused_import(one)
        client, logs = (one.client(service) for service in ("dynamodb", "logs"))
        request = {"TableCreationParameters": {"TableName": one.made.table}}
        imports = DynamoImports(client, logs, request, f"{one.user}/", Backoff(attempts=1), lambda: False)
        one.may("import")
        faults, unread = imports.faults(arn, 5)
        assert ([fault.name for fault in faults], unread) == (["bad.json"], "")
        one.may("import", but=right)
        faults, unread = imports.faults(arn, 5)
        assert faults == []
        assert refused_alone(unread, right), unread


def refused_import(one: Acting) -> str:
    """The ARN of an import whose one item has no sort key."""
    s3 = boto3.client("s3", endpoint_url=one.made.endpoint, **ROOT)
    s3.put_object(Bucket=ITEMS, Key=f"{one.user}/bad.json", Body=b'{"Item": {"PK": {"S": "C#1"}}}\n')
    client = boto3.client("dynamodb", endpoint_url=one.made.endpoint, **ROOT)
    begun = client.import_table(
        S3BucketSource={"S3Bucket": ITEMS, "S3KeyPrefix": one.user},
        InputFormat="DYNAMODB_JSON",
        TableCreationParameters={
            "TableName": one.made.table,
            "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("PK", "SK")],
            "KeySchema": [
                {"AttributeName": name, "KeyType": kind} for name, kind in (("PK", "HASH"), ("SK", "RANGE"))
            ],
            "BillingMode": "PAY_PER_REQUEST",
        },
    )
    arn = str(begun["ImportTableDescription"]["ImportArn"])
    while client.describe_import(ImportArn=arn)["ImportTableDescription"]["ImportStatus"] == "IN_PROGRESS":
        time.sleep(0.1)
    return arn
