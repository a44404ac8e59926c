"""Tables: created as designed, and compared with their design."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ConnectionClosedError

from migrator.model.errors import StoppedError, TargetError
from migrator.model.table import Index, KeyAttribute, TableDesign
from migrator.target.client import dynamodb_client
from migrator.target.table import DynamoTableAdmin

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
    with pytest.raises(TargetError, match="exists already; `migrator table check`"):
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
def test_a_request_whose_answer_is_lost_is_not_refused_for_having_worked(
    client: Any, design: TableDesign, operation: str
) -> None:
    made = DynamoTableAdmin(LosesOneAnswer(client, operation)).create(design)
    assert (made.status, made.differences) == ("ACTIVE", ())


def test_a_table_that_another_creates_at_the_same_time_is_not_ours(
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
    ("change", "difference"),
    [
        (
            {"key": (PK, KeyAttribute("SK", "number"))},
            "its key is PK (HASH S), SK (RANGE N) in the mapping and PK (HASH S), SK (RANGE S)",
        ),
        ({"indexes": ()}, "index GSI1 is in the table and not in the mapping"),
        ({"indexes": (GSI1, replace(GSI1, name="GSI2"))}, "index GSI2 is missing in the table"),
        (
            {"indexes": (replace(GSI1, projection="keys"),)},
            "index GSI1 projects KEYS_ONLY in the mapping and ALL in the table",
        ),
        (
            {"indexes": (replace(GSI1, projection=("a",)),)},
            "index GSI1 projects INCLUDE a in the mapping and ALL",
        ),
        ({"indexes": (replace(GSI1, sort=()),)}, "the key of index GSI1 is GSI1PK (HASH S) in the mapping"),
        ({"ttl": None}, "TTL is off in the mapping and on expiresAt in the table"),
        ({"ttl": "ttl"}, "TTL is on ttl in the mapping and on expiresAt in the table"),
    ],
)
def test_each_difference_is_a_sentence(
    admin: DynamoTableAdmin, design: TableDesign, change: dict[str, Any], difference: str
) -> None:
    admin.create(design)
    state = admin.state(replace(design, **change))
    assert state is not None
    (found,) = state.differences
    assert found.startswith(difference)
