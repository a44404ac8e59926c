"""Services with the adapter, where the log is read: in outbox mode they leave nothing, in strict mode items come first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from tests import support_mysql
from tests import support_services as services
from tests.races.shop import TABLES, log_needs
from tests.service.shop import Order, Shop, User, open_shop
from tests.support_own_server import OwnServer

pytestmark = pytest.mark.slow


@pytest.fixture
def shop(engine: str, server: OwnServer, dynamodb_url: str, tmp_path: Path) -> Iterator[Shop]:
    name, database = {
        "postgresql": ("postgresql", services.postgres_database),
        "mysql": ("mariadb", support_mysql.mysql_database),
    }[engine]
    tables = [*TABLES, *log_needs(engine, TABLES)]
    with (
        database(server.url) as url,
        open_shop(name, url, dynamodb_url, tmp_path, marked_by="log", tables=tables) as shop,
    ):
        yield shop
        shop.live.marks.close()
        shop.done("capture", "uninstall", "--discard-marks", "--force")


@pytest.mark.parametrize("mode", ["outbox", "strict"])
def test_a_service_writes_and_the_relay_makes_the_items(
    shop: Shop, mode: Literal["outbox", "strict"]
) -> None:
    with shop.migration() as migration:
        migration.dual_write(shop.sessions, mode=mode, longest_write_s=120)
        with shop.sessions.begin() as session:
            session.add(User(id=1, name="Ann"))
            session.add(Order(id=1, user_id=1, total=5))
        is_there = ("USER#1", "META") in shop.items()
    assert is_there is (mode == "strict")
    shop.ripen_marks()
    shop.comes_to_rest()
    assert ("USER#1", "META") in shop.items()
