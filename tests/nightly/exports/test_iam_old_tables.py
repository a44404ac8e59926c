"""Each role on old tables of DynamoDB with the rights that `migrator export --as iam` gives it there, and without each of them.

What the roles may do on the new table is tried in tests/nightly/exports/test_iam.py and test_iam_services.py.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import boto3
import pytest

from migrator.api import Migration
from migrator.runtime.errors import MigratorError
from tests import pins
from tests.journeys import documents
from tests.journeys.documents import Shop, old_shop
from tests.nightly.exports.acting import ITEMS, ROOT, Acting, Right, refused_alone

# One worker starts the endpoint once.
pytestmark = pytest.mark.xdist_group("iam")

SCRIPTS: Mapping[str, Sequence[str]] = {
    "import": ("-q table export JOB --to PLACE --restart",),
    "backfill": ("-q backfill JOB --restart",),
    "relay": ("-q relay JOB --once",),
    "verify": ("-q verify JOB --settle 0", "-q verify JOB --repair --settle 0"),
    "report": ("status JOB", "report JOB", "status JOB --findings"),
    "operator": (
        "capture install JOB",
        "capture status JOB",
        "look JOB --pattern profile -p user_id=u1",
        "-q shadow replay JOB --sample 3 --settle 0",
        "look JOB --pk USER#u1",
        "cutover status JOB",
        "cutover advance JOB profile --override tried",
        "cutover rollback JOB profile",
        "clean JOB --row --entity user --key u3 --yes --force",
    ),
}
_SELDOM = {
    **dict.fromkeys(("import", "backfill", "report"), ("GetShardIterator",)),
    "verify": ("GetShardIterator", "GetRecords"),
    "relay": ("Scan",),
}
"""Rights that are asked for only where no checkpoint of a shard has moved for a day, or where no index finds a row; a verify goes
on without its look at what was changed last."""
_MAPPING = documents.MAPPING.replace(
    "    join: {user: {table: Users, on: {user_id: id}}}\n    items:\n",
    "    join: {user: {table: Users, on: {user_id: id}}}\n"
    "    collect: {lines: {count: all, of: Lines, by: order_id}, orders: {count: all, of: Orders, by: user_id}}\n"
    "    items:\n",
).replace("{userName: user.name}", "{userName: user.name, lines: lines, orders: orders}")
"""Children that are found by their table's key, and by an index."""
_INDEXES = {"Orders": {**documents.INDEXES["Orders"], "of_user": {"user_id": "S"}}}
"""The second one has every order of a user, also one without a date."""
_PATTERNS: Mapping[str, Mapping[str, object]] = {
    "profile": {"user_id": "u1"},
    "orders_of_user": {"user_id": "u1"},
    "lines_of_order": {"order_id": "o1"},
    "users": {"ids": ["u1", "u2"]},
}


@pytest.fixture
def shop(
    auth_dynamodb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Shop, Acting]]:
    """A shop that others have filled, and a user who may do nothing yet."""
    monkeypatch.setattr(documents, "MAPPING", _MAPPING)
    monkeypatch.setattr(documents, "INDEXES", _INDEXES)
    for name, value in (("ACCESS_KEY_ID", "test"), ("SECRET_ACCESS_KEY", "test"), ("REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    iam = boto3.client("iam", endpoint_url=auth_dynamodb, **ROOT)
    boto3.client("s3", endpoint_url=auth_dynamodb, **ROOT).create_bucket(Bucket=ITEMS)
    user = f"u{secrets.token_hex(6)}"
    iam.create_user(UserName=user)
    key = iam.create_access_key(UserName=user)["AccessKey"]
    with old_shop(tmp_path, auth_dynamodb) as made:
        made.project.environment.update({
            "AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
        })  # fmt: skip
        yield made, Acting(made.project, iam, user)


@pytest.mark.parametrize("role", sorted(SCRIPTS))
def test_a_role_needs_each_of_its_rights_on_old_tables(role: str, shop: tuple[Shop, Acting]) -> None:
    made, one = shop
    each_taken_away(made, one, role)


@pytest.mark.parametrize("right", ["GetRecords", "GetShardIterator", ""])
def test_verify_keeps_the_last_change_with_its_rights(right: str, shop: tuple[Shop, Acting]) -> None:
    """Without them it verifies all the same, and a move to complete says what is not known."""
    made, one = shop
    job = json.loads(made.project.job.read_text())
    made.project.job.write_text(json.dumps(job | {"cutover": {"quiet": "0.2s"}}))
    one.may("verify", but=Right("OldStreams", f"dynamodb:{right}") if right else None)
    assert one.run(("-q verify JOB --settle 0",)) == ""
    one.may("operator")
    told = made.project.run("decommission", "check", made.job, "--json").data
    (verify,) = [line for line in told["lines"] if line["name"] == "verify"]
    assert verify["verdict"] == ("unknown" if right else "ok"), verify


def each_taken_away(made: Shop, one: Acting, role: str) -> None:
    one.may(role)
    assert one.run(SCRIPTS[role]) == ""
    doctor = made.project.run("doctor", made.job, "--role", role)
    assert doctor.code in (0, 1)
    assert "denied" not in doctor.out.lower()
    for right in one.rights(role):
        if not right.statement.startswith("Old"):
            continue
        if right.name in _SELDOM.get(role, ()):
            continue
        _change(made)
        if right.name == "UpdateTable":
            _switch_off(made, one)
        one.may(role, but=right)
        failed = one.run(SCRIPTS[role])
        assert refused_alone(failed, right), f"{role} without {right}: {failed}"


def _change(made: Shop) -> None:
    """Something for a relay to do, which leads it to what follows from it."""
    made.tables.put(made.real["Users"], [{"id": "u1", "name": secrets.token_hex(4)}])


def _switch_off(made: Shop, one: Acting) -> None:
    with one.as_root():
        made.project.done("capture", "uninstall", made.job, "--force", "--discard-marks")
    off = {"StreamEnabled": False}
    for real in made.real.values():
        made.tables.client.update_table(TableName=real, StreamSpecification=off)


def test_service_needs_the_rights_of_its_old_table_queries(
    shop: tuple[Shop, Acting], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, one = shop
    role = "service-reading"
    asked = {(right.statement, right.name) for right in one.rights(role) if right.statement.startswith("Old")}
    assert asked == {
        *(("OldTables", name) for name in ("BatchGetItem", "DescribeTable", "GetItem", "Query")),
        ("OldIndexes", "Query"),
    }
    with _as_user(one, monkeypatch):
        one.may(role)
        assert _read(made) == ""
        for right in one.rights(role):
            if right.statement.startswith("Old"):
                one.may(role, but=right)
                failed = _read(made)
                assert refused_alone(failed, right), f"without {right}: {failed}"


def test_strict_service_needs_the_read_rights_of_a_relay(
    shop: tuple[Shop, Acting], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, one = shop
    role = "service-strict"
    with _as_user(one, monkeypatch):
        one.may(role)
        assert _written(made) == ""
        for right in one.rights(role):
            # No table is scanned where each is found by a key or an index; no pattern is asked here.
            if right.statement.startswith("Old") and right.name not in (
                "GetItem",
                "GetShardIterator",
                "Scan",
            ):
                one.may(role, but=right)
                failed = _written(made)
                assert refused_alone(failed, right), f"without {right}: {failed}"


@contextmanager
def _as_user(one: Acting, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process has the environment of the user."""
    with monkeypatch.context() as patched:
        for name, value in one.made.environment.items():
            patched.setenv(name, value)
        yield


def _read(made: Shop) -> str:
    refusals = []
    try:
        with Migration.load(made.job) as migration:
            for name, params in _PATTERNS.items():
                try:
                    assert migration.read(name, **params).origin == "sql"
                except MigratorError as error:
                    refusals.append(str(error))
    except MigratorError as error:
        refusals.append(str(error))
    return "".join(refusals)


def _written(made: Shop) -> str:
    """By a client of its own, which may do everything."""
    client = boto3.client("dynamodb", endpoint_url=made.project.endpoint, **ROOT)
    row = {"id": {"S": "u1"}, "name": {"S": secrets.token_hex(4)}}
    try:
        with Migration.load(made.job) as migration:
            migration.dual_write(client, mode="strict", longest_write_s=120)
            client.put_item(TableName=made.real["Users"], Item=row)
    except MigratorError as error:
        return str(error)
    return ""


def test_grants_are_refused_with_a_substitute(dynamodb_url: str, tmp_path: Path) -> None:
    with old_shop(tmp_path, dynamodb_url) as made:
        ended = made.project.run("export", "--as", "grants", made.job)
    assert ended.code == 2
    assert " --as iam`" in ended.err


def test_another_profile_may_be_another_account(dynamodb_url: str, tmp_path: Path) -> None:
    with old_shop(tmp_path, dynamodb_url) as made:
        text = made.project.job.read_text()
        given = text.replace('"dynamodb": {', '"dynamodb": {"region": "eu-west-1", "profile": "old", ')
        made.project.job.write_text(given.replace('"target": {', '"target": {"account": "123456789012", '))
        words = ("export", "--as", "iam", made.job, "--role", "relay", "--region", "eu-west-3")
        policy = made.project.done(*words).out
    assert pins.said(policy, "aws", users=made.real["Users"])
    assert pins.said(policy, "arn", table=made.project.table)
