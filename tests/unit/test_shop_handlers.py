"""The example shop's handlers, tested as a service's own tests do: without a database and without DynamoDB."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from fastapi import HTTPException
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from migrator.runtime.errors import StoppedError
from migrator.testing import FakeMigration
from tests import pins
from tests.support_services import REPOSITORY

pytest_plugins = ("migrator.testing.fixtures",)
ADA = {"userId": 7, "email": "ada@example.com", "name": "Ada"}


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The application, whose lifespan was not begun."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "docker" / "shop"))
    before = set(sys.modules)
    yield importlib.import_module("app")
    for name in set(sys.modules) - before:
        if name in ("app", "forms", "models", "service", "writing"):
            del sys.modules[name]


def test_new_order_stores_its_time_in_the_form_of_existing_ones(shop: ModuleType) -> None:
    models, at = sys.modules["models"], datetime(2026, 1, 2, 3, 4, 5)
    engine = create_engine("sqlite://")
    models.Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(models.Order(id=1, user_id=1, status="pending", total=Decimal(0), created_at=at))
        session.commit()
        assert session.execute(text("SELECT created_at FROM orders")).scalar_one() == "2026-01-02 03:04:05"


@pytest.fixture
def migration(fake_migration: Callable[[str | Path], FakeMigration]) -> FakeMigration:
    return fake_migration(REPOSITORY / "mappings" / "ecommerce.yaml")


@pytest.fixture
def request_(migration: FakeMigration) -> Any:
    return SimpleNamespace(app=SimpleNamespace(state=SimpleNamespace(migration=migration, writing=None)))


def test_a_customer_is_shown_from_either_side(
    shop: ModuleType, migration: FakeMigration, request_: Any
) -> None:
    migration.give("get_user", lambda user_id: [ADA] if user_id == 7 else [])
    for phase in ("shadow", "live"):
        migration.set_phase("get_user", phase)
        assert shop.get_user(request_, 7) == ADA
        with pins.refused(HTTPException):
            shop.get_user(request_, 8)
    assert [call.side for call in migration.calls] == ["sql", "sql", "table", "table"]


def test_an_account_without_a_user_is_not_found(
    shop: ModuleType, migration: FakeMigration, request_: Any
) -> None:
    migration.give("get_user_with_orders", {"user": None, "orders": []})
    with pytest.raises(HTTPException) as caught:
        shop.account(request_, 7)
    assert caught.value.status_code == 404


def test_a_side_that_is_away_is_not_hidden(shop: ModuleType, migration: FakeMigration, request_: Any) -> None:
    migration.fail("get_user", StoppedError("the database is away"))
    with pins.refused(StoppedError):
        shop.get_user(request_, 7)
    assert shop.healthz(request_)["phases"]["get_user"] == "off"
