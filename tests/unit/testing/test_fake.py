"""FakeMigration: what a test of a service says, and what it sees. What it shares with the real one is a contract test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from migrator.api import Migration
from migrator.runtime.errors import SettingsError, TargetError
from migrator.testing import FakeMigration, Read, Write
from tests import pins
from tests.service.reading import MAPPING, records

pytest_plugins = ("migrator.testing.fixtures",)
MakeFake = Callable[[str | Path], FakeMigration]


class Base(DeclarativeBase):
    pass


class User(Base):
    __tablename__ = "users"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


@dataclass
class Order:
    orderId: int
    placedAt: datetime


@pytest.fixture
def fake(tmp_path: Path, fake_migration: MakeFake) -> FakeMigration:
    (tmp_path / "mapping.yaml").write_text(MAPPING)
    return fake_migration(tmp_path / "mapping.yaml")


def test_fake_side_answers_as_given_until_it_is_set_to_fail(fake: FakeMigration) -> None:
    fake.give("by_status", [{"orderId": 1}])
    fake.give("by_status", [{"orderId": 2}], side="table")
    assert fake.read("by_status", status="x") == [{"orderId": 1}]
    fake.set_phase("by_status", "live")
    assert fake.read("by_status", status="x") == [{"orderId": 2}]
    fake.fail("by_status", TargetError("the table is away"), side="table")
    with pins.refused(TargetError):
        fake.read("by_status", status="x")
    fake.set_phase("by_status", "shadow")
    assert fake.read("by_status", status="x") == [{"orderId": 1}]
    fake.give("by_status", lambda status: [{"orderId": 3}] if status == "y" else [])
    assert fake.read("by_status", status="y") == [{"orderId": 3}]
    assert [call.side for call in fake.calls] == ["sql", "table", "table", "sql", "sql"]
    assert fake.calls[-1] == Read("by_status", {"status": "y"}, "sql")


def test_values_may_be_of_pythons_own_types(fake: FakeMigration) -> None:
    moment = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    fake.give("recent_orders", [Order(1, moment)])
    found = records(fake.read("recent_orders", user_id=1))
    assert found == [
        {"orderId": 1, "placedAt": "2026-01-02T03:04:00.000000Z", "total": None, "status": None, "paid": None}
    ]
    assert found.typed()[0]["placedAt"] == moment
    number = UUID(int=1)
    fake.give("recent_orders", [{"total": Decimal("2.50"), "status": number, "placedAt": date(2026, 1, 2)}])
    (order,) = records(fake.read("recent_orders", user_id=1))
    assert (order["total"], order["status"], order["placedAt"]) == (Decimal("2.5"), str(number), "2026-01-02")


@pytest.mark.parametrize(
    "say",
    [
        lambda fake: fake.give("by_state", []),
        lambda fake: fake.give("by_status", [{"orderid": 1}]),
        lambda fake: fake.give("by_status", 5),
        lambda fake: fake.give("user_and_orders", []),
        lambda fake: fake.give("by_status", [], side="dynamodb"),
        lambda fake: fake.set_phase("by_status", "lives"),
        lambda fake: fake.set_phase("by_status", "ramp"),
        lambda fake: fake.read("by_status", status="x"),
        lambda fake: fake.mark_changed(None, "users", None, None),
    ],
    ids=[
        "you-mean",
        "did-you-mean",
        "give-dicts",
        "parts-orders",
        "side",
        "phase-did-you-mean",
        "ramp",
        "given-say",
        "after-both",
    ],
)
def test_what_is_not_the_mappings_is_refused(
    fake: FakeMigration, say: Callable[[FakeMigration], Any]
) -> None:
    with pins.refused(SettingsError):
        say(fake)


def test_writes_through_sessions_and_engines_are_seen(fake: FakeMigration) -> None:
    engine = sa.create_engine("sqlite://")
    Base.metadata.create_all(engine)
    maker = sessionmaker(engine)
    handle = fake.dual_write([maker, engine])
    with maker.begin() as session:
        session.add(User(id=1, name="Ada"))
        session.flush()
        session.get_one(User, 1).name = "Ada L."
    with engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM users WHERE id = :id"), {"id": 1})
        connection.exec_driver_sql('INSERT OR IGNORE INTO "users" VALUES (?, ?)', (2, "Bob"))
    handle.close()
    with engine.begin() as connection:
        connection.execute(sa.delete(User))
    assert fake.writes == [
        Write("users", "insert", {"id": 1, "name": "Ada"}),
        Write("users", "update", {"name": "Ada L.", "users_id": 1}),
        Write("users", "delete", {"id": 1}),
        Write("users", "insert", {"0": 2, "1": "Bob"}),
    ]


def test_session_class_is_recorded_once_it_has_an_engine(fake: FakeMigration) -> None:
    class Ours(Session):
        pass

    engine = sa.create_engine("sqlite://")
    Base.metadata.create_all(engine)
    fake.dual_write(Ours)
    with Ours(engine) as session, session.begin():
        session.execute(sa.insert(User), [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bob"}])
    assert [write.values for write in fake.writes] == [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bob"}]


def test_changes_by_hand_are_seen(fake: FakeMigration) -> None:
    fake.mark_changed(None, "users", None, {"id": 1})
    fake.mark_changed(None, "users", {"id": 1}, {"id": 1, "name": "Ada"})
    fake.mark_changed(None, "users", {"id": 1}, None)
    with fake.changing(None, "orders", 7, 8):
        pass
    assert fake.writes == [
        Write("users", "insert", {"id": 1}),
        Write("users", "update", {"id": 1, "name": "Ada"}),
        Write("users", "delete", {"id": 1}),
        Write("orders", "update", {"key": 7}),
        Write("orders", "update", {"key": 8}),
    ]


def test_given_answers_replace_own_functions(fake: FakeMigration) -> None:
    @fake.pattern("by_status")
    async def by_status(status: str) -> Any:
        raise AssertionError("a test asks no database")

    fake.give("by_status", [{"orderId": 1}])
    assert asyncio.run(by_status(status="x")) == [{"orderId": 1}]
    assert fake.calls == [Read("by_status", {"status": "x"}, "sql")]


def test_fake_is_loaded_from_a_job_with_unset_variables(tmp_path: Path) -> None:
    (tmp_path / "mapping.yaml").write_text(MAPPING)
    job = tmp_path / "reads.yaml"
    job.write_text(
        "job: 1\nmapping: mapping.yaml\nsource: '${NO_SUCH_URL}'\ntarget: {table: '${NO_SUCH_TABLE:-Reads}'}\n"
        "reads: {cursor_key: '${NO_SUCH_KEY}'}\n"
    )
    with FakeMigration.load(job, service="shop", version="1") as fake:
        assert isinstance(fake, Migration)
        assert set(fake.phases().values()) == {"off"}
