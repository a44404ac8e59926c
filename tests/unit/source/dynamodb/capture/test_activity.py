"""What streams of old tables tell of changes: records that nobody has read count, closed shards do not."""

from __future__ import annotations

import pytest

from migrator.runtime.errors import SourceError
from migrator.source.dynamodb.opening import AwsCalls, CapturedStream, StreamActivity
from tests import pins
from tests.unit.source.dynamodb.capture.world import TABLES, Documents


@pytest.fixture
def documents() -> Documents:
    made = Documents()
    made.install()
    made.write("users", 1, name="Ann")
    return made


def activity_of(documents: Documents) -> StreamActivity:
    def stream_of(name: str) -> CapturedStream:
        return CapturedStream(documents.source(name), documents.checkpoints[name])

    def marks() -> dict[str, int]:
        return {}

    return StreamActivity(
        stream_of,
        marks,
        {name: f"prod-{name}" for name in (*TABLES, "coupons")},
        AwsCalls(" --region eu-central-1"),
    )


def test_every_change_makes_another_text_and_only_that_table_s(documents: Documents) -> None:
    activity = activity_of(documents)
    before = activity.look(TABLES)
    assert activity.look(TABLES) == before
    documents.write("users", 1, name="Eve")
    after = activity.look(TABLES)
    assert after.tables["users"] != before.tables["users"]
    assert after.tables["orders"] == before.tables["orders"]


def test_relays_and_split_or_rolled_shards_are_not_changes(documents: Documents) -> None:
    activity = activity_of(documents)
    before = activity.look(TABLES)
    documents.drain()
    documents.fakes["users"].split()
    documents.fakes["users"].roll()
    assert activity.look(TABLES) == before
    documents.drain()
    assert activity.look(TABLES) == before


def test_change_in_an_unknown_shard_is_seen(documents: Documents) -> None:
    activity = activity_of(documents)
    documents.drain()
    documents.fakes["users"].split()
    before = activity.look(TABLES)
    documents.write("users", 2, name="Bob")
    assert activity.look(TABLES) != before
    assert activity.waiting(TABLES) == {"users": 1}


def test_records_that_no_relay_has_read_wait(documents: Documents) -> None:
    activity = activity_of(documents)
    documents.write("orders", 7, user_id=1)
    assert activity.waiting(TABLES) == {"users": 1, "orders": 1}
    documents.drain()
    assert activity.waiting(TABLES) == {}


def test_pages_without_records_before_them_hide_no_change(documents: Documents) -> None:
    """GetRecords may have to be called several times to come to records."""
    activity = activity_of(documents)
    documents.drain()
    before = activity.look(TABLES)
    documents.fakes["users"].empty_pages = 3
    assert activity.look(TABLES) == before
    documents.write("users", 1, name="Eve")
    assert activity.look(TABLES) != before
    assert activity.waiting(TABLES) == {"users": 1}


def test_table_without_writes_for_a_day_is_quiet(documents: Documents) -> None:
    """The record of its checkpoint is older than what the stream keeps, and relays went on all the while."""
    activity = activity_of(documents)
    documents.drain()
    before = activity.look(TABLES)
    for _ in range(4):
        documents.pass_by(10 * 3600)
        documents.drain()
    assert activity.look(TABLES) == before
    assert activity.waiting(TABLES) == {}
    documents.write("users", 1, name="Eve")
    assert activity.look(TABLES) != before


def test_capture_that_was_never_begun_knows_nothing() -> None:
    look = activity_of(Documents()).look(TABLES)
    assert (look.tables, look.blind) == ({}, pins.text())


def test_day_without_relay_shows_changes_and_reports_the_gap(
    documents: Documents,
) -> None:
    """No relay runs once all patterns are complete, and old tables go days later: shards roll, and are dropped."""
    activity = activity_of(documents)
    documents.drain()
    for fake in documents.fakes.values():
        fake.roll()
    documents.pass_by(3 * 24 * 3600)
    before = activity.look(TABLES)
    assert pins.said(before.blind, "day")
    assert activity.look(TABLES) == before
    documents.write("users", 1, name="Eve")
    after = activity.look(TABLES)
    assert after.tables["users"] != before.tables["users"]
    assert after.tables["orders"] == before.tables["orders"]
    with pytest.raises(SourceError, match="ConsumedWriteCapacityUnits"):
        activity.waiting(TABLES)


@pytest.mark.parametrize("happens", ["switch_off", "create_anew"])
def test_a_stream_that_is_lost_is_no_quiet_one(documents: Documents, happens: str) -> None:
    getattr(documents.fakes["users"], happens)()
    with pins.refused(SourceError):
        activity_of(documents).look(TABLES)


def test_the_calls_of_aws_name_the_account_s_tables(documents: Documents) -> None:
    activity = activity_of(documents)
    expiry, there, policy = activity.read_only(["users"])
    assert expiry.startswith(
        "aws dynamodb describe-time-to-live --region eu-central-1 --table-name prod-users #"
    )
    assert there.startswith("aws dynamodb get-resource-policy --region eu-central-1 --resource-arn arn:aws:")
    assert "--resource-arn arn:aws:dynamodb:eu-central-1:123456789012:table/users" in policy
    assert '"Effect": "Deny"' in policy
    drops = activity.drops(["users"])
    assert drops[0].startswith("# prod-users")
    assert drops[-1] == "aws dynamodb delete-table --region eu-central-1 --table-name prod-users"
    assert activity.named() == {*TABLES, "coupons"}


@pytest.mark.parametrize(
    ("endpoint", "everywhere"),
    [("http://127.0.0.1:4566", True), ("https://dynamodb.eu-west-1.amazonaws.com", False), (None, False)],
)
def test_no_call_goes_to_aws_if_the_tables_are_on_another_server(
    endpoint: str | None, *, everywhere: bool
) -> None:
    calls = [line for line in AwsCalls(" --region x", lambda: endpoint).drop("t", "") if line[0] != "#"]
    assert all("--region x" in line for line in calls)
    told = [line for line in calls if f"--endpoint-url {endpoint}" in line]
    of_dynamodb = [line for line in calls if line.startswith("aws dynamodb ")]
    assert told == (calls if everywhere else of_dynamodb if endpoint else [])
    assert not any("lambda" in line for line in calls), "it never had a stream that others might read"
