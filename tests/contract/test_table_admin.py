"""Tables: created as designed, and compared with their design."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from migrator.dynamodb.admin import DynamoTableAdmin
from migrator.dynamodb.client import dynamodb_client
from migrator.mapping.model.table import Index, KeyAttribute, TableDesign
from migrator.runtime.errors import Interrupted, StoppedError, TargetError
from migrator.runtime.values import replace
from migrator.settings.job import TableOptions
from tests import pins

PK, SK = KeyAttribute("PK"), KeyAttribute("SK")
GSI1 = Index("GSI1", (KeyAttribute("GSI1PK"),), (KeyAttribute("GSI1SK"),))


@pytest.fixture
def client(dynamodb_url: str) -> Any:
    return dynamodb_client(region=None, profile=None, endpoint=dynamodb_url)


@pytest.fixture
def admin(client: Any) -> DynamoTableAdmin:
    return DynamoTableAdmin(client)


@pytest.fixture
def design(client: Any) -> Iterator[TableDesign]:
    made = TableDesign(f"T{secrets.token_hex(6)}", (PK, SK), "type", ttl="expiresAt", indexes=(GSI1,))
    yield made
    for name in client.list_tables()["TableNames"]:
        if name == made.name:
            client.delete_table(TableName=name)


def test_a_table_is_as_it_was_designed(admin: DynamoTableAdmin, design: TableDesign) -> None:
    assert admin.state(design) is None
    made = admin.create(design)
    assert (made.status, made.differences) == ("ACTIVE", ())
    assert admin.state(design) == made


def test_every_kind_of_index_and_key(admin: DynamoTableAdmin, design: TableDesign) -> None:
    indexes = (
        GSI1,
        Index("Keys", (KeyAttribute("kp"),), (KeyAttribute("rank", "number"),), "keys"),
        Index("Some", (KeyAttribute("sp"),), (), ("a", "b")),
        Index("Many", (KeyAttribute("m1"), KeyAttribute("m2")), (KeyAttribute("m3"),)),
        Index("Local", (PK,), (KeyAttribute("total", "number"),), local=True),
    )
    assert admin.create(replace(design, indexes=indexes)).differences == ()


def test_a_table_is_never_created_twice(admin: DynamoTableAdmin, design: TableDesign) -> None:
    admin.create(design)
    with pins.refused(TargetError):
        admin.create(design)


class LosesOneAnswer:
    """A client whose first request of this kind takes effect without an answer."""

    def __init__(self, client: Any, operation: str) -> None:
        self._client, self._operation = client, operation

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if name != self._operation:
            return method
        self._operation = ""

        def lost(**words: Any) -> None:
            method(**words)
            raise ConnectionClosedError(endpoint_url="there")

        return lost


@pytest.mark.parametrize("operation", ["create_table", "update_time_to_live"])
def test_create_with_a_lost_answer_is_not_refused_as_existing(
    client: Any, design: TableDesign, operation: str
) -> None:
    made = DynamoTableAdmin(LosesOneAnswer(client, operation)).create(design)
    assert (made.status, made.differences) == ("ACTIVE", ())


def test_table_created_concurrently_by_another_is_not_ours(
    client: Any, admin: DynamoTableAdmin, design: TableDesign, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.create(design)
    other = DynamoTableAdmin(client)
    monkeypatch.setattr(other, "_describe", lambda name: None)  # as it was a moment ago
    with pytest.raises(StoppedError, match="ResourceInUseException"):
        other.create(design)


def test_a_new_table_of_the_same_name_has_another_id(
    admin: DynamoTableAdmin, design: TableDesign, client: Any
) -> None:
    first = admin.create(design)
    client.delete_table(TableName=design.name)
    assert admin.create(design).table_id != first.table_id


@pytest.mark.parametrize(
    "change",
    [
        {"key": (PK, KeyAttribute("SK", "number"))},
        {"indexes": ()},
        {"indexes": (GSI1, replace(GSI1, name="GSI2"))},
        {"indexes": (replace(GSI1, projection="keys"),)},
        {"indexes": (replace(GSI1, projection=("a",)),)},
        {"indexes": (replace(GSI1, sort=()),)},
        {"ttl": None},
        {"ttl": "ttl"},
    ],
    ids=[
        "key-mapping",
        "index-mapping",
        "index-missing",
        "index-projects",
        "index-projects-mapping",
        "key-index-mapping",
        "off-mapping",
        "ttl-mapping",
    ],
)
def test_each_difference_is_a_sentence(
    admin: DynamoTableAdmin, design: TableDesign, change: dict[str, Any]
) -> None:
    admin.create(design)
    state = admin.state(replace(design, **change))
    assert state is not None
    (found,) = state.differences
    assert found == pins.text()


# ── its indexes ──

GSI2 = Index("GSI2", (KeyAttribute("GSI2PK"),), (KeyAttribute("rank", "number"),), "keys")


def change(admin: DynamoTableAdmin, design: TableDesign) -> list[str]:
    """Everything that `index_changes` names, done; what was told meanwhile."""
    told: list[str] = []
    planned = admin.index_changes(design)
    for index in planned.add:
        admin.add_index(design, index, TableOptions(), told.append)
    for name in planned.remove:
        admin.remove_index(design, name, told.append)
    return told


def test_an_index_is_added_and_holds_the_items_that_are_there(
    client: Any, admin: DynamoTableAdmin, design: TableDesign
) -> None:
    admin.create(design)
    item = {"PK": {"S": "a"}, "SK": {"S": "b"}, "GSI2PK": {"S": "g"}, "rank": {"N": "7"}}
    client.put_item(TableName=design.name, Item=item)
    grown = replace(design, indexes=(GSI1, GSI2))
    change(admin, grown)
    state = admin.state(grown)
    assert state is not None
    assert state.differences == ()
    asked = {
        "TableName": design.name,
        "IndexName": "GSI2",
        "KeyConditionExpression": "GSI2PK = :g",
        "ExpressionAttributeValues": {":g": {"S": "g"}},
    }
    assert client.query(**asked)["Count"] == 1
    change(admin, grown)
    assert admin.index_changes(grown).add == ()


@pytest.mark.parametrize("what", ["add", "remove"])
def test_a_change_that_describe_table_shows_late_is_waited_for(
    client: Any, design: TableDesign, what: str
) -> None:
    told, late = list[str](), list[Any]()
    admin = DynamoTableAdmin(client, sleep=lambda _: late.pop() and None)
    few, many = design, replace(design, indexes=(GSI1, GSI2))
    admin.create(few if what == "add" else many)
    before = client.describe_table(TableName=design.name)["Table"]

    def answer(parsed: dict[str, Any], **_: Any) -> None:
        if late:
            parsed["Table"] = before

    def changed(**_: Any) -> None:
        late.extend([1, 1, 1])

    client.meta.events.register("after-call.dynamodb.DescribeTable", answer)
    client.meta.events.register("after-call.dynamodb.UpdateTable", changed)
    if what == "add":
        admin.add_index(many, GSI2, TableOptions(), told.append)
    else:
        admin.remove_index(few, "GSI2", told.append)
    assert late == []
    assert told[-1] == pins.text()


def test_an_index_that_somebody_removes_again_is_not_waited_for_without_end(
    client: Any, design: TableDesign
) -> None:
    admin = DynamoTableAdmin(client, sleep=lambda _: None)
    admin.create(design)
    before = client.describe_table(TableName=design.name)["Table"]
    client.meta.events.register(
        "after-call.dynamodb.DescribeTable", lambda parsed, **_: parsed.update(Table=before)
    )
    with pins.refused(TargetError):
        admin.add_index(replace(design, indexes=(GSI1, GSI2)), GSI2, TableOptions(), lambda _: None)


def test_index_removed_from_the_design_is_dropped_and_harmless(
    admin: DynamoTableAdmin, design: TableDesign
) -> None:
    admin.create(replace(design, indexes=(GSI1, GSI2)))
    state = admin.state(design)
    assert state is not None
    assert state.extra == state.differences == ("index GSI2 is in the table and not in the mapping",)
    assert admin.existing(design) == state.table_id
    change(admin, design)
    assert admin.state(design) == replace(state, differences=(), parts=(), extra=())


def test_a_missing_index_is_still_a_table_that_does_not_fit(
    admin: DynamoTableAdmin, design: TableDesign
) -> None:
    admin.create(design)
    with pins.refused(TargetError):
        admin.existing(replace(design, indexes=(GSI1, GSI2)))


@pytest.mark.parametrize(
    "index",
    [
        replace(GSI1, projection="keys"),
        replace(GSI1, sort=()),
        Index("GSI2", (KeyAttribute("GSI1SK", "number"),)),
        Index("Local", (PK,), (KeyAttribute("total"),), local=True),
    ],
    ids=["projection-table", "key-table", "type-mapping", "local-alone"],
)
def test_unalterable_part_is_named_and_left(
    admin: DynamoTableAdmin, design: TableDesign, index: Index
) -> None:
    admin.create(design)
    indexes = (index,) if index.name == "GSI1" else (GSI1, index)
    planned = admin.index_changes(replace(design, indexes=indexes))
    assert (planned.add, planned.remove) == ((), ())
    assert pins.said(planned.cannot[index.name])


def test_a_table_with_another_key_is_none_to_change(admin: DynamoTableAdmin, design: TableDesign) -> None:
    admin.create(design)
    with pins.refused(TargetError):
        admin.index_changes(replace(design, key=(PK,)))


class SlowIndexes:
    """A client whose table is CREATING and DELETING indexes for some calls of DescribeTable, as one on AWS is for hours; it
    takes one change at a time."""

    def __init__(self, client: Any, calls: int = 3) -> None:
        self._client, self._calls = client, calls
        self._state, self._left = "", 0
        self._name = ""
        self._gone: dict[str, Any] | None = None
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def update_table(self, **words: Any) -> Any:
        if self._left:
            self.refused += 1
            error = {"Code": "LimitExceededException", "Message": "one online index at a time"}
            raise ClientError({"Error": error}, "UpdateTable")
        ((action, body),) = words["GlobalSecondaryIndexUpdates"][0].items()
        self._name, self._left = body["IndexName"], self._calls
        self._state = {"Create": "CREATING", "Delete": "DELETING"}[action]
        if action == "Delete":
            indexes = self._client.describe_table(TableName=words["TableName"])["Table"][
                "GlobalSecondaryIndexes"
            ]
            self._gone = next(one for one in indexes if one["IndexName"] == self._name)
        return self._client.update_table(**words)

    def describe_table(self, **words: Any) -> Any:
        answer = self._client.describe_table(**words)
        if self._left:
            self._left -= 1
            indexes = answer["Table"].setdefault("GlobalSecondaryIndexes", [])
            if self._state == "DELETING":
                indexes.append(self._gone)
            index = next(one for one in indexes if one["IndexName"] == self._name)
            index |= {
                "IndexStatus": self._state,
                "Backfilling": self._state == "CREATING",
                "ItemCount": 12_000,
            }
        return answer


def test_indexes_change_one_at_a_time_with_progress_reports(client: Any, design: TableDesign) -> None:
    slow = SlowIndexes(client)
    admin = DynamoTableAdmin(slow, sleep=lambda seconds: None)
    admin.create(design)
    third = replace(GSI2, name="GSI3")
    told = change(admin, replace(design, indexes=(GSI2, third)))
    assert told == [pins.text("filled"), pins.text("entries"), "index GSI1 is DELETING"]
    assert slow.refused == 0
    state = DynamoTableAdmin(client).state(replace(design, indexes=(GSI2, third)))
    assert state is not None
    assert state.differences == ()


def test_stopped_table_change_continues_if_repeated(client: Any, design: TableDesign) -> None:
    slow, stopped = SlowIndexes(client, calls=5), iter([False, True])
    DynamoTableAdmin(client).create(design)
    grown = replace(design, indexes=(GSI1, GSI2))
    first = DynamoTableAdmin(slow, sleep=lambda seconds: None, stop=lambda: next(stopped))
    with pins.refused(Interrupted, "while"):
        change(first, grown)
    second = DynamoTableAdmin(slow, sleep=lambda seconds: None)
    told: list[str] = []
    second.settle(grown, told.append)
    assert told == [pins.text("filled")]
    assert second.index_changes(grown).add == ()


@pytest.mark.parametrize("indexes", [(GSI1, GSI2), ()])
def test_index_change_with_a_lost_answer_is_not_refused(
    client: Any, design: TableDesign, indexes: tuple[Index, ...]
) -> None:
    DynamoTableAdmin(client).create(design)
    wanted = replace(design, indexes=indexes)
    change(DynamoTableAdmin(LosesOneAnswer(client, "update_table")), wanted)
    state = DynamoTableAdmin(client).state(wanted)
    assert state is not None
    assert state.differences == ()
