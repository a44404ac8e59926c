"""PostgreSQL's row level security hides rows of a reader without a word: every reader of ours must stop instead."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from migrator.mapping.model.table import Item
from migrator.runtime.values import replace
from migrator.source.engines.postgresql import connect
from tests import pins
from tests.journeys.command import Project, project
from tests.journeys.in_process import Ended

MAPPING = """\
mapping: 1
table: {name: Rows, key: [PK, SK], type: type, ttl: expiresAt}
entities:
  account:
    join: {region: region_id}
    collect: {notes: {count: all, of: note, by: account_id}}
    items:
      Account:
        key: ["A#{id}", META]
        attributes: {name: name, region: region.name, notes: notes}
"""
SCHEMA = """
    CREATE TABLE region (id int PRIMARY KEY, name text);
    CREATE TABLE account (id int PRIMARY KEY, name text, region_id int REFERENCES region);
    CREATE TABLE note (id int PRIMARY KEY, account_id int REFERENCES account ON DELETE CASCADE);
    INSERT INTO region VALUES (1, 'north'), (2, 'south');
    INSERT INTO account SELECT n, 'name ' || n, 1 + n % 2 FROM generate_series(1, 10) AS n;
    INSERT INTO note SELECT n, n FROM generate_series(1, 10) AS n;
"""
READS = "GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role};"
RELAYS = (
    "GRANT USAGE ON SCHEMA migrator TO {role};"
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA migrator TO {role};"
)
HIDE = "ALTER TABLE {table} ENABLE ROW LEVEL SECURITY; CREATE POLICY half ON {table} USING (id <= 5);"
TABLES = ("account", "region", "note")


@dataclass(frozen=True)
class Shop:
    """`own`: the command as the owner of the tables; `plain`: as a role that may only read them."""

    own: Project
    plain: Project
    url: str
    role: str

    def sql(self, text: str, **words: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as server:
            server.execute(text.format(role=self.role, **words))

    def commands(self) -> list[Ended]:
        return [self.plain.run(word, str(self.plain.job)) for word in ("backfill", "verify")]


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str, postgres_database: str) -> Iterator[Shop]:
    role = f"reader_{secrets.token_hex(4)}"
    table = f"R{secrets.token_hex(4)}"
    own = project(tmp_path, postgres_database, dynamodb_url, table, tuning="lease_s: 1", text=MAPPING)
    url = make_url(postgres_database).set(username=role, password=None).render_as_string(hide_password=False)
    plain = replace(own, environment={**own.environment, "MIGRATOR_SOURCE_URL": url})
    made = Shop(own, plain, postgres_database, role)
    made.sql(SCHEMA)
    made.sql(f"CREATE ROLE {role} LOGIN; {READS}")
    own.prepared("table create")
    yield made
    made.sql("DROP OWNED BY {role}; DROP ROLE {role};")


def captured(shop: Shop) -> None:
    """Changes leave marks, and the role may work them."""
    shop.own.done("capture", "install", str(shop.own.job))
    shop.sql(RELAYS)
    shop.plain.done("backfill", str(shop.plain.job))


def items(shop: Shop) -> list[Item]:
    return [item for item in shop.own.items() if item["type"] == "Account"]


def eventually(shop: Shop) -> None:
    """The marks that the relay held when it stopped come back after their lease."""
    for _ in range(50):
        shop.plain.done("relay", "--once", str(shop.plain.job))
        if shop.plain.run("verify", "--settle", "0s", str(shop.plain.job)).code == 0:
            return
        time.sleep(0.1)
    pytest.fail("the table never says what the rows say")


def test_row_policy_stops_every_command_and_doctor_names_it(shop: Shop) -> None:
    fine = shop.plain.run("doctor", str(shop.plain.job))
    assert pins.said(" ".join(fine.out.split()), "hides")
    for table in TABLES:
        shop.sql(HIDE, table=table)
        for ended in shop.commands():
            assert ended.code == 3, ended
            assert pins.said(ended.err, "security", table=table)
            assert "BYPASSRLS" in ended.err
        told = shop.plain.run("doctor", "--json", str(shop.plain.job))
        assert told.code == 1
        (check,) = [one for one in told.data["checks"] if one["name"] == "row level security"]
        assert check["state"] == "failed"
        assert table in check["what"]
        assert "BYPASSRLS" in check["mend"]
        mapping, url = str(shop.plain.folder / "mapping.yaml"), shop.plain.environment["MIGRATOR_SOURCE_URL"]
        checked = shop.plain.run("mapping", "check", mapping, "--source", url)
        assert checked.code == 2, checked
        assert f"row level security of table {table}" in checked.err
        shop.sql("ALTER TABLE {table} DISABLE ROW LEVEL SECURITY", table=table)
    assert items(shop) == []


def test_a_user_that_bypasses_a_policy_reads_all_rows(shop: Shop) -> None:
    for table in TABLES:
        shop.sql(HIDE, table=table)
    # The owner, a superuser here, is held by no policy; neither is a role with BYPASSRLS.
    shop.sql("ALTER ROLE {role} BYPASSRLS")
    assert [ended.code for ended in shop.commands()] == [0, 0]
    assert len(items(shop)) == 10


def test_row_policy_in_mid_migration_stops_relay_without_deletes(shop: Shop) -> None:
    captured(shop)
    before, table = items(shop), "note"
    shop.sql(HIDE, table=table)
    shop.sql("UPDATE account SET name = name || '!'")
    ended = shop.plain.run("relay", "--once", str(shop.plain.job))
    assert ended.code == 3, ended
    assert pins.said(ended.err, table=table)
    assert items(shop) == before
    shop.sql("ALTER ROLE {role} BYPASSRLS")
    eventually(shop)
    assert len(items(shop)) == 10


def test_without_the_guard_the_items_of_hidden_rows_are_buried(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the tests above would see: the guard is the setting of each connection, and nothing else."""
    captured(shop)
    shop.sql(HIDE, table="account")
    shop.sql("UPDATE account SET name = name || '!'")
    monkeypatch.delitem(connect._SETTINGS, "row_security")
    monkeypatch.setattr(connect, "_opening", connect._opening.__wrapped__)
    shop.plain.run("relay", "--once", str(shop.plain.job))
    assert len(items(shop)) == 5


def test_cascades_of_hidden_rows_leave_their_marks(shop: Shop) -> None:
    """Triggers run as their definer, and foreign keys as the owner: no policy of the service's role hides a child."""
    captured(shop)
    shop.sql("GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}")
    shop.sql(HIDE, table="note")
    as_service = shop.plain.environment["MIGRATOR_SOURCE_URL"]
    with psycopg.connect(as_service, autocommit=True) as service:
        service.execute("DELETE FROM account WHERE id IN (3, 8)")
    with psycopg.connect(shop.url) as server:
        marks = server.execute(
            "SELECT table_name, count(*) FROM migrator.mark GROUP BY table_name ORDER BY table_name"
        ).fetchall()
    assert marks == [("public.account", 2), ("public.note", 2)]
