"""Services of a mapping that the job has gone on from: they go on leaving marks, and write no items."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import sessionmaker
from structlog.testing import capture_logs

from migrator.runtime.errors import SettingsError
from tests import pins
from tests.races.shop import MAPPING
from tests.service.shop import Shop, User
from tests.service.test_outbox import a_user

pytestmark = pytest.mark.slow

NEWER = MAPPING.replace("attributes: {orders: placed}", "attributes: {orders: placed, again: name}")
MORE = MAPPING.replace("keep: [total]", "keep: [total, note]")
MODES: dict[str, dict[str, Any]] = {
    "outbox": {},
    "flush": {"flush": True},
    "strict": {"mode": "strict", "longest_write_s": 120},
}


@dataclass(frozen=True)
class Service:
    sessions: sessionmaker[Any]
    logs: Sequence[Mapping[str, Any]]

    def write(self, number: int) -> None:
        with self.sessions.begin() as session:
            session.add(a_user(number))

    def writes_until_it_fails(self, ends_at: float) -> None:
        for number in count(1):
            assert time.monotonic() < ends_at
            self.write(number)

    @property
    def told(self) -> int:
        """How often it said that it leaves its items to the relay."""
        return sum(one["event"] == "left_to_the_relay" for one in self.logs)


@contextmanager
def of_before(shop: Shop, mode: str) -> Iterator[Service]:
    """A service by the mapping of before, at work."""
    shop.job.write_text(shop.job.read_text().replace("silent_s: 60", "silent_s: 3"))
    with capture_logs() as logs, shop.migration() as migration:
        service = Service(shop.sessions, logs)
        migration.dual_write(service.sessions, **MODES[mode])
        yield service


def go_on(shop: Shop, mapping: str = NEWER) -> None:
    (shop.folder / "mapping.yaml").write_text(mapping)
    shop.done("capture", "install")


@pytest.mark.engines("postgresql", "mariadb")
@pytest.mark.parametrize("mode", MODES)
def test_running_service_leaves_items_to_relay_once_job_advances(triggered_shop: Shop, mode: str) -> None:
    shop = triggered_shop
    with of_before(shop, mode) as service:
        service.write(1)
        written_itself = mode != "outbox"
        assert (("USER#1", "META") in shop.items()) is written_itself
        go_on(shop)
        number, ends_at = 2, time.monotonic() + 120
        while written_itself and not service.told:
            # Its place among the writers is its own until its next heartbeat, for which those of the new mapping wait.
            assert time.monotonic() < ends_at
            service.write(number)
            number += 1
        for last in (number, number + 1):
            service.write(last)
            assert (f"USER#{last}", "META") not in shop.items()
        assert service.told == int(written_itself)
        shop.comes_to_rest()
        assert shop.items()[f"USER#{last}", "META"]["again"] == f"User {last}"


@pytest.mark.engines("postgresql", "mariadb")
@pytest.mark.parametrize("mode", MODES)
def test_service_restarted_with_the_old_mapping_leaves_marks(triggered_shop: Shop, mode: str) -> None:
    shop = triggered_shop
    go_on(shop)
    (shop.folder / "mapping.yaml").write_text(MAPPING)
    with of_before(shop, mode) as service:
        service.write(1)
        assert (shop.items(), service.told) == ({}, int(mode != "outbox"))
    (shop.folder / "mapping.yaml").write_text(NEWER)
    shop.comes_to_rest()
    assert shop.items()["USER#1", "META"]["again"] == "User 1"


@pytest.mark.engines("postgresql")
def test_marking_service_continues_if_marks_fit_the_new_mapping(
    shop: Shop,
) -> None:
    with of_before(shop, "strict") as service:
        (shop.folder / "mapping.yaml").write_text(NEWER)
        shop.done("capture", "install", "--by", "services")
        service.write(1)
        assert (shop.items(), service.told) == ({}, 1)
        shop.comes_to_rest()
        with shop.sessions.begin() as session:
            session.get_one(User, 1).name = "Another"
        shop.comes_to_rest()
        assert shop.items()["USER#1", "META"]["again"] == "Another"


@pytest.mark.engines("postgresql")
@pytest.mark.parametrize("mode", ["outbox", "strict"])
def test_marking_service_stops_if_the_new_mapping_needs_more(shop: Shop, mode: str) -> None:
    with shop.engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE orders ADD COLUMN note VARCHAR(20)"))
    with of_before(shop, mode) as service:
        (shop.folder / "mapping.yaml").write_text(MORE)
        shop.done("capture", "install", "--by", "services")
        ends_at = time.monotonic() + 60
        with pins.refused(SettingsError, "orders"):
            service.writes_until_it_fails(ends_at)
    (shop.folder / "mapping.yaml").write_text(MAPPING)
    with pins.refused(SettingsError, "public"), of_before(shop, mode):
        pass


@pytest.mark.engines("sqlite")
def test_service_with_a_mapping_unknown_to_relays_is_refused(triggered_shop: Shop) -> None:
    (triggered_shop.folder / "mapping.yaml").write_text(NEWER)
    with pins.refused(SettingsError), of_before(triggered_shop, "outbox"):
        pass
