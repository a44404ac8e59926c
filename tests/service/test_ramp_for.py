"""A ramp that is for somebody: users who ask a service, of whom some are answered by the table whatever the share."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from migrator.api import Migration
from migrator.mapping.model.evidence import Member, Move, PatternPhase, State
from migrator.testing import FakeMigration
from tests.service.reading import ReadShop, seen

USERS = range(1, 120)
BOB: Member = ("user_id", "42")


def aim(shop: ReadShop, pattern: str, percent: int, *audience: Member) -> None:
    known = shop.phases.all().get(pattern, PatternPhase(pattern))
    shop.phases.move(Move(pattern, known.state, State("ramp", percent, audience), "a test"), known.version)


def from_table(migration: Migration, pattern: str = "user_and_orders") -> set[int]:
    """Users whom the table answers."""
    return {user for user in USERS if migration.read(pattern, user_id=user).origin == "table"}


def until(migration: Migration, pattern: str, state: str) -> None:
    """Until the service acts by it."""
    for _ in range(1200):
        if migration.phases()[pattern] == state:
            return
        asyncio.run(asyncio.sleep(0.05))
    raise AssertionError(migration.phases())


def test_ramp_for_one_user_at_no_percent_ends_with_a_rollback(
    read_shop: ReadShop,
) -> None:
    with read_shop.migration() as migration:
        assert from_table(migration) == set()
        aim(read_shop, "user_and_orders", 0, BOB)
        until(migration, "user_and_orders", "ramp 0 % for user_id=42")
        assert from_table(migration) == {42}
        page = migration.read_page("recent_orders", user_id=42, size=2)
        assert page.items.origin == "sql"  # another pattern
        read_shop.move("shadow", 0, "user_and_orders")
        seen(migration, "shadow", "user_and_orders")
        assert from_table(migration) == set()


@pytest.mark.engines("sqlite")
def test_users_of_the_share_and_named_ones_are_on_the_new_side(read_shop: ReadShop) -> None:
    with read_shop.migration() as migration:
        read_shop.move("ramp", 20, "user_and_orders")
        until(migration, "user_and_orders", "ramp 20 %")
        share = from_table(migration)
        assert 5 < len(share) < 50
        some = [user for user in USERS if user not in share][:2]
        aim(read_shop, "user_and_orders", 20, *(("user_id", str(user)) for user in some))
        until(migration, "user_and_orders", f"ramp 20 % for user_id={some[0]}, user_id={some[1]}")
        assert from_table(migration) == share | set(some)


@pytest.mark.engines("sqlite")
def test_tenant_is_named_by_any_parameter_despite_optional_ones(read_shop: ReadShop) -> None:
    with read_shop.migration() as migration:
        aim(read_shop, "by_status", 0, ("status", "open"))
        aim(read_shop, "recent_orders", 0, ("user_id", "2"))
        until(migration, "by_status", "ramp 0 % for status=open")
        until(migration, "recent_orders", "ramp 0 % for user_id=2")
        sides: list[Any] = [migration.read("by_status", status=text).origin for text in ("open", "sent")]
        assert sides == ["table", "sql"]
        for limit in (None, 3):
            assert migration.read("recent_orders", user_id=2, limit=limit).origin == "table"
            assert migration.read("recent_orders", user_id=1, limit=limit).origin == "sql"
        first = migration.read_page("recent_orders", user_id=2, size=2)
        assert first.items.origin == "table"


@pytest.mark.engines("sqlite")
def test_the_fake_aims_equally(read_shop: ReadShop) -> None:
    with FakeMigration(read_shop.folder / "mapping.yaml") as fake:
        fake.give("user_and_orders", {"user": None, "orders": []})
        fake.set_phase("user_and_orders", "ramp", audience=["user_id=42"])
        assert from_table(fake) == {42}
        assert fake.phases()["user_and_orders"] == "ramp 0 % for user_id=42"
