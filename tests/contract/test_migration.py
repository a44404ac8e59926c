"""A service's migration and the fake of it that its tests use: the same surface, the same answers, the same refusals."""

from __future__ import annotations

import asyncio
import dis
import inspect
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, cast

import pytest
import sqlalchemy as sa
from prometheus_client import CollectorRegistry

from migrator.api import Migration
from migrator.mapping.model.evidence import Phase
from migrator.runtime.errors import SettingsError
from migrator.testing import FakeMigration
from tests import pins
from tests.service.reading import ReadShop, open_read_shop, records, seen

KINDS = ("real", "fake")
ORDERS = [
    {"orderId": n, "total": Decimal(f"{n}.5"), "placedAt": datetime(2026, 1, n, 10), "paid": True}
    for n in range(19, 0, -2)
]
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("recent_order", {}),
    ("recent_orders", {}),
    ("recent_orders", {"user_id": "2"}),
    ("recent_orders", {"user_id": 2, "limt": 1}),
    ("recent_orders", {"user_id": 2**70}),
    ("by_status", {"status": None}),
)


@dataclass
class World:
    """A migration, and how a test moves its patterns. SQL and the table differ in the status of orders."""

    migration: Migration
    move: Callable[[str, Phase, int], None]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, dynamodb_url: str) -> Iterator[ReadShop]:
    folder = tmp_path_factory.mktemp("migration")
    url = f"sqlite:///{folder / 'shop.db'}"
    with open_read_shop("sqlite", url, dynamodb_url, folder, marked=True) as made:
        made.sql("UPDATE orders SET status = 'sql'")
        yield made


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, shop: ReadShop) -> Iterator[World]:
    made = real if request.param == "real" else fake
    with made(shop) as world:
        yield world


class real:
    def __init__(self, shop: ReadShop) -> None:
        self.shop, self.migration = shop, shop.migration()

    def __enter__(self) -> World:
        return World(self.migration, self.move)

    def __exit__(self, *_: object) -> None:
        self.migration.close()
        self.shop.move("off")

    def move(self, pattern: str, phase: Phase, percent: int = 0) -> None:
        self.shop.move(phase, percent, pattern)
        seen(self.migration, phase, pattern)


class fake:
    def __init__(self, shop: ReadShop) -> None:
        self.migration = FakeMigration(shop.folder / "mapping.yaml")

    def __enter__(self) -> World:
        given = self.migration.give
        given("recent_orders", _some("sql"), side="sql")
        given("recent_orders", _some("open"), side="table")
        given("user_and_orders", lambda user_id: {"user": None, "orders": []})
        given("by_status", [])
        return World(self.migration, self.migration.set_phase)

    def __exit__(self, *_: object) -> None:
        self.migration.close()


def _some(status: str) -> Callable[..., Any]:
    def orders(user_id: int, limit: int | None) -> Any:
        return [order | {"status": status} for order in ORDERS][:limit] if user_id == 2 else []

    return orders


def refusal(ask: Callable[[], object]) -> str:
    with pytest.raises(SettingsError) as caught:
        ask()
    return str(caught.value)


# ── the surface ──


def test_fake_has_every_member_with_the_same_signature() -> None:
    for name, member in vars(Migration).items():
        mine = vars(FakeMigration).get(name)
        if mine is None or name.startswith("_") or name == "load":
            continue
        assert type(mine) is type(member)
        if callable(member):
            assert inspect.signature(mine) == inspect.signature(member), name


def test_nothing_that_opens_a_connection_is_left_to_the_fake() -> None:
    """What asks the service of the real one is done otherwise in the fake, and so is what calls such a function."""
    mine = set(vars(FakeMigration))
    opening = _members_naming("_service")
    assert {"dual_write", "pattern", "metrics", "_open_reading"} <= opening
    assert opening - mine == {"_attach", "_marking"}
    assert _members_naming("_attach", "_marking") <= mine


def _members_naming(*words: str) -> set[str]:
    """Members of the real one whose code names one of the words."""
    found = set()
    for name, member in vars(Migration).items():
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        function = inspect.unwrap(function) if callable(function) else function
        if inspect.isfunction(function) and set(words) & {
            step.argval for step in dis.get_instructions(function) if isinstance(step.argval, str)
        }:
            found.add(name)
    return found


# ── reads ──


def test_a_read_is_answered_by_the_side_of_the_phase(world: World) -> None:
    steps: tuple[tuple[Phase, int, str], ...] = (
        ("off", 0, "sql"),
        ("shadow", 0, "sql"),
        ("ramp", 100, "table"),
        ("live", 0, "table"),
        ("complete", 0, "table"),
    )
    for phase, percent, side in steps:
        world.move("recent_orders", phase, percent)
        found = records(world.migration.read("recent_orders", user_id=2, limit=2))
        assert found.origin == side
        status = "sql" if side == "sql" else "open"
        assert found[0] == {
            "orderId": 19,
            "total": Decimal("19.5"),
            "status": status,
            "placedAt": "2026-01-19T10:00:00.000000",
            "paid": True,
        }
        assert found.typed()[0]["placedAt"] == datetime(2026, 1, 19, 10)
        assert asyncio.run(world.migration.read_async("recent_orders", user_id=2, limit=2)) == found


def test_parts_and_answers_of_nothing(world: World) -> None:
    assert world.migration.read("user_and_orders", user_id=99) == {"user": None, "orders": []}
    assert world.migration.read("by_status", status="none") == []


def test_phases_are_reported(world: World) -> None:
    world.move("recent_orders", "ramp", 10)
    assert world.migration.phases() == {
        "recent_orders": "ramp 10 %",
        "user_and_orders": "off",
        "by_status": "off",
        "session_by_id": "off",
    }


def test_a_ramp_takes_the_same_callers(shop: ReadShop) -> None:
    sides = []
    for made in (real, fake):
        with made(shop) as world:
            world.move("by_status", "ramp", 30)
            sides.append([world.migration.read("by_status", status=str(n)).origin for n in range(40)])
    assert sides[0] == sides[1]
    assert 3 < sides[0].count("table") < 25


def test_pages_follow_one_another(world: World) -> None:
    found, cursor = [], None
    for size in (4, 4, 4):
        page = world.migration.read_page("recent_orders", user_id=2, size=size, cursor=cursor)
        found.append([order["orderId"] for order in page.items])
        cursor = page.next
    assert found == [[19, 17, 15, 13], [11, 9, 7, 5], [3, 1]]
    assert cursor is None
    page = asyncio.run(world.migration.read_page_async("recent_orders", user_id=2, size=4))
    assert page.items.origin == "sql"


def test_own_functions_are_routed(world: World) -> None:
    @world.migration.pattern("session_by_id")
    def session(session_id: str) -> list[dict[str, Any]]:
        return [{"sessionId": session_id}]

    assert session("new") == [{"sessionId": "new"}]
    world.move("session_by_id", "live", 0)
    assert pins.said(refusal(lambda: session("new")), "function")
    assert pins.said(refusal(lambda: session(session="new")), "parameter")

    @session.table  # type: ignore[no-redef]  # the documentation gives both functions one name
    def session(session_id: str) -> list[dict[str, Any]]:
        return [{"sessionId": "of the table"}]

    assert session("new") == [{"sessionId": pins.text("table")}]


# ── what is refused ──


@pytest.mark.parametrize(("pattern", "params"), CALLS)
def test_a_wrong_call_is_refused_in_the_same_words(
    pattern: str, params: dict[str, Any], shop: ReadShop
) -> None:
    told = []
    for made in (real, fake):
        with made(shop) as world:
            told.append(refusal(lambda: world.migration.read(pattern, **params)))
    assert told[0] == told[1]


def test_wrong_pages_and_writes_are_refused_in_the_same_words(shop: ReadShop) -> None:
    told = []
    for made in (real, fake):
        with made(shop) as world:
            told.append(_refusals(world.migration, shop))
    assert told[0] == told[1]


def _refusals(migration: Migration, shop: ReadShop) -> list[str]:
    cursor = migration.read_page("recent_orders", user_id=2, size=2).next
    asks: tuple[Callable[[], object], ...] = (
        lambda: migration.read_page("recent_orders", user_id=2, size=0),
        lambda: migration.read_page("user_and_orders", user_id=2),
        lambda: migration.read_page("recent_orders", user_id=1, cursor=cursor),
        lambda: migration.dual_write(object()),
        lambda: migration.dual_write(shop.engine, mode=cast("Any", "both")),
        lambda: migration.pattern("by_stat"),
    )
    return [refusal(ask) for ask in asks]


# ── writes, metrics, the end ──


def test_writes_go_through_what_it_was_given(world: World, shop: ReadShop) -> None:
    world.migration.begin_marking()
    with closing(world.migration.dual_write(shop.engine)), shop.engine.begin() as connection:
        with world.migration.changing(connection, "users", 2):
            connection.execute(sa.text("UPDATE users SET name = :name WHERE id = 2"), {"name": "Bob"})
        world.migration.mark_changed(connection, "users", {"id": 1}, {"id": 1})
    with shop.engine.connect() as connection:
        assert connection.execute(sa.text("SELECT name FROM users WHERE id = 2")).scalar() == "Bob"


def test_what_it_counts_is_one_collector(world: World) -> None:
    world.migration.read("by_status", status="none")
    registry = CollectorRegistry()
    registry.register(world.migration.metrics)
    names = {family.name for family in registry.collect()}
    assert {"migrator_process_info", "migrator_pattern_phase", "migrator_read_seconds"} <= names


def test_after_its_end_it_refuses_everything(world: World, shop: ReadShop) -> None:
    async def lived() -> None:
        async with world.migration.lifespan():
            world.migration.begin_reading()

    asyncio.run(lived())
    asks: tuple[Callable[[], object], ...] = (
        lambda: world.migration.read("by_status", status="x"),
        lambda: world.migration.phases(),
        lambda: world.migration.dual_write(shop.engine),
        lambda: world.migration.begin_marking(),
        lambda: asyncio.run(world.migration.read_async("by_status", status="x")),
    )
    (said,) = {refusal(ask) for ask in asks}
    assert said == pins.text()
