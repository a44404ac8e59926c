"""A service whose own role is held by a policy: what it cannot see must not go unmarked, nor be written as gone."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa

from migrator.runtime.errors import MigratorError, UnmarkedError
from tests import pins
from tests.service.shop import Shop, open_shop

HIDE = ("ALTER TABLE orders ENABLE ROW LEVEL SECURITY", "CREATE POLICY few ON orders USING (id < 100)")


@dataclass
class Held:
    """A shop whose service writes as a role that `HIDE` holds."""

    shop: Shop
    engine: sa.Engine

    def sql(self, *statements: str) -> None:
        with self.shop.engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)


@pytest.fixture(params=["services", "triggers"])
def held(
    request: pytest.FixtureRequest, postgres_database: str, dynamodb_url: str, tmp_path: Path
) -> Iterator[Held]:
    with open_shop("postgresql", postgres_database, dynamodb_url, tmp_path, marked_by=request.param) as shop:
        role = f"service_{secrets.token_hex(4)}"
        engine = sa.create_engine(
            shop.engine.url.set(username=role, password=None), isolation_level="READ COMMITTED"
        )
        made = Held(shop, engine)
        made.sql(
            f"CREATE ROLE {role} LOGIN",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}",
            f"GRANT USAGE ON SCHEMA migrator TO {role}",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA migrator TO {role}",
            "INSERT INTO users (id, name) VALUES (1, 'Ada')",
            "INSERT INTO orders (id, user_id, total) VALUES (1, 1, 5), (100, 1, 5)",
        )
        shop.done("backfill")
        yield made
        engine.dispose()
        made.sql(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@pytest.mark.parametrize("held", ["services"], indirect=True)
def test_marking_service_is_refused_if_rows_are_hidden_from_it(held: Held) -> None:
    """DELETE of a user takes orders along that the service does not see: their marks would be missing."""
    held.sql(*HIDE)
    with held.shop.migration() as migration:
        migration.dual_write(held.engine, unknown_rows="lock")
        with pins.refused(UnmarkedError), held.engine.begin() as connection:
            connection.execute(sa.text("DELETE FROM users WHERE id = 1"))
    held.shop.comes_to_rest()
    assert ("USER#1", "ORDER#100") in held.shop.items()


def test_strict_service_writes_nothing_from_hidden_rows(held: Held) -> None:
    with held.shop.migration() as migration:
        migration.dual_write(held.engine, mode="strict", longest_write_s=120)
        with held.engine.begin() as connection:
            connection.execute(sa.text("UPDATE users SET name = 'Bo' WHERE id = 1"))
        before = held.shop.items()
        held.sql(*HIDE)
        with pins.refused(MigratorError), held.engine.begin() as connection:
            connection.execute(sa.text("UPDATE users SET name = 'Cy' WHERE id = 1"))
        assert held.shop.items() == before
        with held.engine.connect() as connection:
            assert connection.execute(sa.text("SHOW row_security")).scalar() == "on"


@pytest.mark.parametrize("held", ["triggers"], indirect=True)
def test_service_under_a_policy_continues_with_triggers(held: Held) -> None:
    held.sql(*HIDE)
    with held.shop.migration() as migration:
        migration.dual_write(held.engine)
        with held.engine.begin() as connection:
            connection.execute(sa.text("UPDATE orders SET total = 6 WHERE id = 1"))
            connection.execute(sa.text("DELETE FROM users WHERE id = 1"))
    held.shop.comes_to_rest()
    assert held.shop.items() == {}
