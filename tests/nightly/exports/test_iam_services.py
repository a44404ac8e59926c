"""Services with exactly the rights that `migrator export --as iam` gives them, and with each of them taken away."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import sqlalchemy as sa
from botocore.exceptions import ClientError

from migrator.api import Migration
from migrator.runtime.errors import MigratorError
from migrator.runtime.values import replace
from tests.exports.generated import loaded, table_of
from tests.exports.shipped import on_server
from tests.journeys.cutover import live
from tests.nightly.exports.acting import (
    PATTERNS,
    Acting,
    Right,
    acting,
    asked_by_the_server,
    complete,
    prepared,
    refused_alone,
)
from tests.nightly.exports.test_iam import FILLED
from tests.support_adapter import DRIVERS, service_url

pytestmark = pytest.mark.xdist_group("iam")


def each_taken_away(one: Acting, role: str, refused: Callable[[int], str]) -> None:
    """`refused`: what the service was refused in that round, or ''. The doctor names the same right, and no other."""
    rights = [right for right in one.rights(role) if asked_by_the_server(role, right)]
    rounds: Sequence[Right | None] = [None, *rights]
    for number, without in enumerate(rounds):
        one.may(role, but=without)
        one.check_doctor(role, without)
        failed = refused(number)
        if without is None:
            assert failed == ""
        else:
            assert refused_alone(failed, without), f"{role} without {without}: {failed}"


@pytest.fixture
def shop(auth_dynamodb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Acting]:
    """Everything is in the table, and this process has the environment of the user."""
    with acting(tmp_path, auth_dynamodb) as one:
        prepared(one, FILLED)
        for name, value in one.made.environment.items():
            monkeypatch.setenv(name, value)
        yield one


def test_a_service_needs_the_calls_of_its_patterns(shop: Acting) -> None:
    complete(shop)
    assert {(right.statement, right.name) for right in shop.rights("service-reading")} == {
        *(("Table", name) for name in ("BatchGetItem", "GetItem", "Query")),
        ("Indexes", "Query"),
    }

    def read(_: int) -> str:
        refusals = []
        with Migration.load(shop.made.job) as migration:
            for name, params in PATTERNS.items():
                try:
                    assert migration.read(name, **params).origin == "table"
                except MigratorError as error:
                    refusals.append(f"{name}: {error}")
        # Each right is that of one pattern alone.
        assert len(refusals) <= 1
        return "".join(refusals)

    each_taken_away(shop, "service-reading", read)


def test_service_on_a_generated_module_needs_each_right(shop: Acting) -> None:
    words = ("--allow-missing", "--out", "service", "--json")
    (file,) = shop.made.done("export", "--as", "boto3", str(shop.made.job), *words).data["files"]
    module = loaded(shop.made.folder / "service" / file["name"])
    with table_of(module)(shop.client("dynamodb"), shop.made.table) as table:
        each_taken_away(shop, "service-after", lambda number: used(module, table, 9000 + number))


def used(module: ModuleType, table: Any, number: int) -> str:
    """Every question and every kind of write of a generated module; what the first one was refused, or ''."""
    row = module.InvoiceRow(id=number, customer_id=3, total=number)
    try:
        for name, params in PATTERNS.items():
            assert getattr(table, name)(**params)
        table.put_invoice(row)
        # The other item of the row stays as it is: a check of it is part of the transaction.
        dearer = table.change_invoice(row, replace(row, total=number + 1))
        assert [found.id for found in table.invoices_by_total(total=number + 1)] == [number]
        moved = table.change_invoice(dearer, replace(dearer, customer_id=4))
        table.delete_invoice(moved)
        assert table.invoices_by_total(total=number + 1) == []
    except ClientError as error:
        return str(error)
    return ""


def test_a_service_in_strict_mode_needs_each_of_its_rights(shop_on_server: tuple[Acting, str]) -> None:
    one, url = shop_on_server
    engine = sa.create_engine(service_url("postgresql", url, DRIVERS))
    each_taken_away(one, "service-strict", lambda number: written(one, engine, number))
    engine.dispose()


@pytest.fixture
def shop_on_server(
    auth_dynamodb: str, postgres_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Acting, str]]:
    with acting(tmp_path, auth_dynamodb) as one:
        made = on_server(one.made, postgres_database)
        with one.as_root():
            for words in (["table", "create"], ["capture", "install", "--by", "services"], ["backfill"]):
                made.done(*words, str(made.job))
        live(made, list(PATTERNS))
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield one, postgres_database


def written(one: Acting, engine: sa.Engine, number: int) -> str:
    """A new row, a changed one, a deleted one and reads of a service; what it was refused, or ''."""
    try:
        with Migration.load(one.made.job) as migration:
            migration.dual_write(engine, mode="strict", longest_write_s=120)
            with engine.begin() as connection:
                # Values that are in S3 already are not put there again.
                new = {"id": 9100 + number, "name": f"New {number}"}
                connection.execute(sa.text("INSERT INTO customer (id, name) VALUES (:id, :name)"), new)
                changed = {"name": f"Eve {number}"}
                connection.execute(sa.text("UPDATE customer SET name = :name WHERE id = 1"), changed)
                connection.execute(sa.text("DELETE FROM invoice WHERE id = :id"), {"id": 10 + number})
            for name, params in PATTERNS.items():
                assert migration.read(name, **params).origin == "table"
    except MigratorError as error:
        return str(error)
    return ""
