"""A domain over an enum (and over a domain over it) as key: no operator of PostgreSQL's compares it, so the base does."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
import sqlalchemy as sa

from migrator.mapping.model.table import encode_key
from tests.support_adapter import listening, seen_marks, service_url
from tests.support_capture import Capturing, captured, capturing
from tests.support_source import plan_of

TYPES = """
    CREATE SCHEMA kinds;
    CREATE TYPE kinds."Mood" AS ENUM ('sad', 'ok', 'happy');
    CREATE DOMAIN mood AS kinds."Mood";
    CREATE DOMAIN feeling AS mood CHECK (CAST(VALUE AS text) <> 'sad');
    CREATE DOMAIN price AS numeric(8, 2);
    CREATE DOMAIN cost AS price;
    CREATE DOMAIN word AS varchar(8);
    CREATE DOMAIN ids AS uuid;
    CREATE DOMAIN moment AS timestamptz;
    CREATE DOMAIN raw AS bytea;
    CREATE DOMAIN yes AS boolean;
    CREATE DOMAIN mask AS bit(4);
"""
KEYS = {
    "mood": ("'happy'", "'ok'", "'sad'"),
    "feeling": ("'happy'", "'ok'"),
    "cost": ("1.50", "2.00"),
    "word": ("'a'", "'b'"),
    "ids": ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "'b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"),
    "moment": ("'2020-01-01 00:00+02'", "'2021-01-01 00:00+02'"),
    "raw": (r"'\x01'", r"'\x02'"),
    "yes": ("false", "true"),
    "mask": ("'0101'", "'1111'"),
}


@pytest.fixture(scope="module")
def shop(new_postgres_database: object) -> Iterator[Capturing]:
    assert callable(new_postgres_database)
    url = new_postgres_database()
    with psycopg.connect(url, autocommit=True) as server:
        server.execute(TYPES)
        for type_, keys in KEYS.items():
            server.execute(f"CREATE TABLE of_{type_} (id {type_} PRIMARY KEY, also mood, name text)")
            rows = ", ".join(f"({key}, 'ok', 'x')" for key in keys)
            server.execute(f"INSERT INTO of_{type_} VALUES {rows}")
    with capturing("postgresql", url) as made:
        made.install(*(captured(made.table(f"of_{type_}"), ["id", "also", "name"]) for type_ in KEYS))
        yield made


@pytest.mark.parametrize("type_", KEYS)
def test_pages_and_single_rows_are_read(shop: Capturing, type_: str) -> None:
    plan = plan_of(shop.table(f"of_{type_}"))
    after, found = None, []
    for bound in [*shop.source.page_bounds(plan, 1), None]:
        found += shop.source.read_page(plan, after, bound)
        after = bound
    assert len(found) == len(KEYS[type_])
    keys = [encode_key([row[0]]) for row in found]
    assert sorted(shop.source.read_rows(plan, keys), key=repr) == sorted(found, key=repr)
    assert all(row[1] == "ok" for row in found)


@pytest.mark.parametrize("type_", KEYS)
def test_a_change_leaves_its_mark_by_trigger_and_by_adapter(shop: Capturing, type_: str) -> None:
    """The trigger must not fail: the service's own write would."""
    key = KEYS[type_][0]
    ears, seen = listening(shop, [captured(shop.table(f"of_{type_}"), ["id", "also", "name"])], "lock")
    engine = sa.create_engine(service_url("postgresql", shop.url))
    ears.attach(engine)
    table = sa.table(f"of_{type_}", sa.column("id"), sa.column("also"), sa.column("name"))
    here = sa.text(f"CAST(id AS text) = CAST(CAST({key} AS {type_}) AS text)")
    shop.left()
    with engine.begin() as connection:
        connection.execute(table.update().where(here).values(also=sa.text("'happy'")))
        connection.execute(table.delete().where(here))
        connection.execute(sa.text(f"INSERT INTO of_{type_} (id, also, name) VALUES ({key}, 'ok', 'x')"))
    marks = shop.left()
    assert [(one.before or {}).get("also") for one in marks] == ["ok", "happy", None]
    assert len(seen_marks(shop, seen)) == len(marks)
    engine.dispose()
