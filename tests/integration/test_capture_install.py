"""Capture is put in, compared and taken out on real databases, and refuses what it could not keep its word for."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import threading
import time
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
import sqlalchemy as sa

from migrator.cli.text import alembic_text, sql_text
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.live import MarkedBy
from migrator.mapping.model.table import KeyAttribute, TableDesign
from migrator.runtime.errors import SettingsError
from migrator.runtime.values import replace
from migrator.stages.live.capture import CaptureStage
from tests import pins
from tests.support_capture import Capturing, captured, capturing
from tests.support_source import plan_of

DESIGN = TableDesign("T", (KeyAttribute("PK"),), "type", ttl="expiresAt")
SCHEMA = [
    "CREATE TABLE customer (id integer PRIMARY KEY, name varchar(40))",
    'CREATE TABLE "or der" (id integer PRIMARY KEY, customer_id integer, "per%cent" varchar(20), extra varchar(9))',
    "INSERT INTO \"or der\" VALUES (1, 1, 'a', 'b')",
]
CATALOGUE = {
    "sqlite": "SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY 1",
    "mariadb": """SELECT TABLE_NAME, '' FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() UNION ALL
        SELECT TRIGGER_NAME, ACTION_STATEMENT FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = DATABASE() ORDER BY 1""",
    "postgresql": """SELECT nspname::text, '' FROM pg_namespace WHERE nspname !~ '^pg_' UNION ALL
        SELECT relname::text, relkind::text FROM pg_class WHERE relnamespace <> 'pg_catalog'::regnamespace
            AND relnamespace <> 'information_schema'::regnamespace AND relname !~ '^pg_toast' UNION ALL
        SELECT proname::text, prosrc FROM pg_proc WHERE prolang <> 12 AND prolang <> 13 UNION ALL
        SELECT tgname::text, tgenabled::text FROM pg_trigger ORDER BY 1, 2""",
}


def plans(shop: Capturing) -> list[EntityPlan]:
    tables = shop.source.facts().tables
    found = [plan_of(tables[name]) for name in ("customer", "or der")]
    return [replace(plan, entity=replace(plan.entity, key=()), slots=plan.slots) for plan in found]


def stage(shop: Capturing, job: str = "shop") -> CaptureStage:
    return CaptureStage(shop.capture, job, DESIGN)


def catalogue(shop: Capturing) -> list[Any]:
    with shop.service() as service:
        answer = service.execute(CATALOGUE[shop.engine])
        return list((service if shop.engine == "mariadb" else answer).fetchall())


def states(shop: Capturing) -> dict[str, str]:
    found = stage(shop).status(plans(shop))
    return {one.table.rpartition(".")[2]: one.state for one in found.tables}


def test_uninstall_leaves_nothing_and_install_does_nothing_twice(shop: Capturing) -> None:
    before = catalogue(shop)
    done = stage(shop).install(plans(shop))
    assert (len(done.tables), len(done.changed), done.new) == (2, 2, True)
    assert states(shop) == {"customer": "captured", "or der": "captured"}
    installed, first = catalogue(shop), shop.tickets.generation()
    again = stage(shop).install(plans(shop))
    assert (again.changed, again.new) == ((), False)
    assert catalogue(shop) == installed
    assert shop.tickets.generation() == first
    stage(shop).uninstall(shop.marks, discard_marks=False)
    assert catalogue(shop) == before
    assert stage(shop).uninstall(shop.marks, discard_marks=False) == []


def test_the_printed_sql_does_what_install_does(shop: Capturing) -> None:
    text = sql_text(stage(shop).steps(plans(shop)))
    with shop.service() as service:
        if shop.engine == "sqlite":
            service.executescript(text)
        elif shop.engine == "postgresql":
            service.execute(text)
        else:
            _by_the_client(shop, text)
    assert states(shop) == {"customer": "captured", "or der": "captured"}
    assert stage(shop).install(plans(shop)).changed == ()
    shop.run('UPDATE "or der" SET "per%cent" = \'z\'')
    assert len(shop.left()) == 1


def _by_the_client(shop: Capturing, text: str) -> None:
    """As an administrator runs a file: with the server's own client and sql_mode, where a double quote begins a text."""
    url = sa.make_url(shop.url)
    client = shutil.which("mariadb") or shutil.which("mysql")
    assert client, "no client of MariaDB is installed"
    words = [
        client,
        f"--host={url.host}",
        f"--port={url.port or 3306}",
        f"--user={url.username}",
        str(url.database),
    ]
    subprocess.run(words, input=text, text=True, check=True, timeout=120)


def test_the_alembic_migration_goes_up_and_down(shop: Capturing) -> None:
    before = catalogue(shop)
    text = alembic_text(stage(shop).steps(plans(shop)), "shop").replace("from alembic import op\n", "")

    def run(way: str) -> None:
        """What Alembic does: a function of the file, its `op` on one connection."""
        with shop.writing.engine.begin() as op:
            names: dict[str, Any] = {"op": op}
            exec(compile(text, "migration.py", "exec"), names)
            names[way]()

    run("upgrade")
    assert states(shop) == {"customer": "captured", "or der": "captured"}
    run("downgrade")
    assert catalogue(shop) == before


def test_new_column_makes_triggers_stale_until_the_next_install(shop: Capturing) -> None:
    stage(shop).install(plans(shop))
    shop.run('ALTER TABLE "or der" ADD COLUMN late integer')
    assert states(shop) == {"customer": "captured", "or der": "stale"}
    status = stage(shop).status(plans(shop))
    assert not status.whole
    (stale,) = [one for one in status.tables if one.state == "stale"]
    assert (stale.came, stale.gone) == (("late",), ())
    assert [name.rpartition(".")[2] for name in stage(shop).install(plans(shop)).changed] == ["or der"]
    assert states(shop) == {"customer": "captured", "or der": "captured"}
    shop.run('UPDATE "or der" SET late = 1')
    assert len(shop.left()) == 1
    stage(shop).uninstall(shop.marks, discard_marks=False)
    assert not [row for row in catalogue(shop) if "migrator" in str(row[0]) or "capture" in str(row[0])]


def test_missing_and_extra_triggers_are_detected(shop: Capturing) -> None:
    stage(shop).install(plans(shop))
    drop = next(
        step for step in shop.capture.uninstall_steps() if step.table.endswith("customer")
    ).statements[0]
    shop.run(drop.replace("`", '"'))
    assert states(shop)["customer"] == "missing"
    stage(shop).install(plans(shop)[1:])
    assert states(shop)["customer"] == "missing"
    assert len(stage(shop).install(plans(shop)).changed) == 1
    assert [one.state for one in shop.capture.states(shop.capture.captured(plans(shop)[:1]))] == [
        "captured",
        "extra",
    ]


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
def test_a_trigger_that_is_disabled_is_seen(shop: Capturing) -> None:
    stage(shop).install(plans(shop))
    shop.run("ALTER TABLE customer DISABLE TRIGGER ALL")
    assert states(shop)["customer"] == "disabled"
    shop.run("ALTER TABLE customer ENABLE TRIGGER ALL")
    assert states(shop)["customer"] == "disabled", "a replicated change would leave none"
    assert len(stage(shop).install(plans(shop)).changed) == 1
    assert states(shop)["customer"] == "captured"


def test_marks_that_wait_hinder_an_uninstall(shop: Capturing) -> None:
    stage(shop).install(plans(shop))
    shop.run("INSERT INTO customer VALUES (1, 'x')")
    with pins.refused(SettingsError):
        stage(shop).uninstall(shop.marks, discard_marks=False)
    assert stage(shop).uninstall(shop.marks, discard_marks=True)


def test_dropped_mark_table_is_recreated_and_reported(shop: Capturing) -> None:
    stage(shop).install(plans(shop))
    first, ticket = shop.tickets.generation(), shop.tickets.draw()
    shop.run("DROP TABLE migrator.mark" if shop.engine == "postgresql" else "DROP TABLE migrator_mark")
    done = stage(shop).install(plans(shop))
    assert (done.changed, done.new, done.lost_marks) == ((), False, True)
    assert shop.tickets.generation()[0] != first[0]
    assert shop.tickets.draw() == ticket + 1
    shop.run("INSERT INTO customer VALUES (1, 'x')")
    assert len(shop.left()) == 1
    assert not stage(shop).install(plans(shop)).lost_marks


def test_a_source_is_captured_for_one_job(shop: Capturing) -> None:
    stage(shop).install(plans(shop))
    for call in (
        lambda: stage(shop, "other").install(plans(shop)),
        lambda: stage(shop, "other").uninstall(shop.marks, discard_marks=True),
    ):
        with pins.refused(SettingsError):
            call()


def test_every_refusal_is_reported_at_once_and_nothing_is_done(shop: Capturing) -> None:
    shop.run("CREATE VIEW seen AS SELECT id FROM customer")
    before, view = catalogue(shop), shop.table("seen")
    key = (view.columns[0],)
    wanted = [*plans(shop), plan_of(view, key=key)]
    with pytest.raises(SettingsError) as caught:
        replace(stage(shop), design=replace(DESIGN, ttl=None)).install(wanted)
    text = str(caught.value)
    assert "no TTL attribute" in text
    assert pins.said(text)
    assert catalogue(shop) == before


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
def test_missing_rights_are_reported_on_postgresql(shop: Capturing) -> None:
    role = f"poor_{secrets.token_hex(4)}"
    shop.run(f"CREATE ROLE {role} LOGIN", f'GRANT ALL ON customer, "or der" TO {role}')
    try:
        with capturing("postgresql", _as(shop.url, role, 5432)) as poor:
            with pytest.raises(SettingsError) as caught:
                stage(poor).install(plans(poor))
            assert pins.said(str(caught.value), "make")
            assert pins.said(str(caught.value), "public")
    finally:
        shop.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@pytest.mark.parametrize("each", ["mariadb"], indirect=True)
def test_mariadb_missing_rights_and_nontransactional_tables_fail(shop: Capturing) -> None:
    role, home = f"poor_{secrets.token_hex(4)}", urlsplit(shop.url).path[1:]
    shop.run(f"CREATE USER {role}@'%'", f"GRANT SELECT, INSERT ON \"{home}\".* TO {role}@'%'")
    try:
        with capturing("mariadb", _as(shop.url, role, 3306)) as poor:
            found = stage(poor).refusals(plans(poor))
        assert pins.said(found[0], "our")
        assert pins.said(found[1], "ticket")
        assert pins.said(found[2], "lacks")
        shop.run(f"GRANT ALL ON \"{home}\".* TO {role}@'%'")
        with capturing("mariadb", _as(shop.url, role, 3306)) as rich:
            assert stage(rich).refusals(plans(rich)) == []
            stage(rich).install(plans(rich))
        shop.run(f"REVOKE TRIGGER ON \"{home}\".* FROM {role}@'%'")
        with capturing("mariadb", _as(shop.url, role, 3306)) as blind:
            states = {table.state for table in stage(blind).status(plans(blind)).tables}
        assert states == {"hidden"}
    finally:
        shop.run(f"DROP USER {role}@'%'")
    shop.run("ALTER TABLE customer ENGINE = MyISAM")
    (refusal,) = stage(shop).refusals(plans(shop))
    assert pins.said(refusal, "customer")


def _as(url: str, user: str, port: int) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{user}@{parts.hostname}:{parts.port or port}"))


@pytest.mark.parametrize("each", ["postgresql", "mariadb"], indirect=True)
def test_an_install_waits_for_locks_in_short_pieces(shop: Capturing) -> None:
    """Others write on while the install cannot have its lock, and it comes through once it can."""
    wanted: list[EntityPlan] = plans(shop)
    with shop.service() as holder, shop.service() as other:
        holder.execute("BEGIN")
        holder.execute("INSERT INTO customer VALUES (1, 'held')")
        thread = threading.Thread(target=lambda: stage(shop).install(wanted))
        thread.start()
        longest = max(_took(other, f"INSERT INTO customer VALUES ({n}, 'x')") for n in range(2, 9))
        assert longest < 60
        holder.execute("COMMIT")
        thread.join(120)
    assert states(shop) == {"customer": "captured", "or der": "captured"}


def _took(service: Any, statement: str) -> float:
    began = time.monotonic()
    service.execute(statement)
    return time.monotonic() - began


def test_status_names_a_column_that_was_renamed(shop: Capturing) -> None:
    """Where the engine lets triggers follow (SQLite, PostgreSQL), or leaves them behind (MariaDB)."""
    shop.run('ALTER TABLE "or der" ADD COLUMN late integer')
    stage(shop).install(plans(shop))
    shop.run('ALTER TABLE "or der" RENAME COLUMN late TO later')
    (found,) = [one for one in stage(shop).status(plans(shop)).tables if one.table.endswith("or der")]
    followed = {"sqlite": set(), "postgresql": set(), "mariadb": {"late"}}[shop.engine]
    assert found.state == "stale"
    assert set(found.gone) == followed


_RENAMED: dict[str, tuple[list[str], str, list[tuple[str, list[str]]]]] = {
    "postgresql": (
        [
            "CREATE TYPE mood AS ENUM ('sad', 'ok')",
            "CREATE DOMAIN feeling AS mood",
            "CREATE TYPE place AS (city text, mood mood)",
            "CREATE TABLE person (id integer PRIMARY KEY, m mood, f feeling, many mood[], p place, n1 text, n2 text)",
        ],
        "ALTER TYPE mood ADD VALUE 'glad'",
        [
            (
                "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'",
                ["f: sad", "m: sad", "many: sad", "p: mood.sad"],
            ),
            ("ALTER TYPE place RENAME ATTRIBUTE city TO town", ["p: city."]),
            (
                "ALTER TYPE mood RENAME VALUE 'ok' TO 'x'; ALTER TYPE mood RENAME VALUE 'glad' TO 'ok';"
                " ALTER TYPE mood RENAME VALUE 'x' TO 'glad'",
                [
                    f"{name}{label}"
                    for name in ("f: ", "m: ", "many: ", "p: mood.")
                    for label in ("glad", "ok")
                ],
            ),
            (
                "ALTER TABLE person RENAME n1 TO x; ALTER TABLE person RENAME n2 TO n1; ALTER TABLE person RENAME x TO n2",
                [],
            ),
        ],
    ),
    "mariadb": (
        [
            "CREATE TABLE person (id integer PRIMARY KEY, m ENUM('sad', 'ok'), f SET('a', 'b'),"
            " n1 text, n2 text, g varchar(20) AS (concat('g', id)))"
        ],
        "",
        [
            ("ALTER TABLE person MODIFY m ENUM('blue', 'ok')", []),
            ("ALTER TABLE person MODIFY f SET('a', 'c')", []),
            ("ALTER TABLE person MODIFY g varchar(20) AS (concat('h', id))", []),
        ],
    ),
}


@pytest.mark.parametrize("each", list(_RENAMED), indirect=True)
@pytest.mark.parametrize("marked_by", ["triggers", "services"])
def test_renamed_value_makes_capture_stale_until_next_install(shop: Capturing, marked_by: MarkedBy) -> None:
    made, harmless, changes = _RENAMED[shop.engine]
    shop.run(*made)

    def states() -> list[tuple[str, tuple[str, ...]]]:
        # A new source: the schema is read once.
        with capturing(shop.engine, shop.url) as now:
            table = now.table("person")
            names = [column.name for column in table.columns]
            return [(one.state, one.gone) for one in now.capture.states([captured(table, ["id"], names)])]

    def install() -> None:
        with capturing(shop.engine, shop.url) as now:
            table = now.table("person")
            tables = [captured(table, ["id"], [column.name for column in table.columns])]
            for step in now.capture.install_steps(tables, "shop", marked_by):
                now.capture.do(step)
            assert now.capture.install_steps(tables, "shop", marked_by) == []

    well = [("captured" if marked_by == "triggers" else "services", ())]
    install()
    assert states() == well
    if harmless:
        shop.run(harmless)
        assert states() == well
    for change, gone in changes:
        shop.run(change)
        ((state, found),) = states()
        assert state == "stale"
        # A server that names all labels in the type has no name of one.
        assert found == tuple(gone) or (marked_by == "services" and not gone)
        install()
        assert states() == well


@pytest.mark.parametrize("marked_by", ["triggers", "services"])
def test_mapped_column_swapping_its_name_makes_capture_stale(shop: Capturing, marked_by: MarkedBy) -> None:
    shop.run("CREATE TABLE person (id integer PRIMARY KEY, n1 varchar(9), n2 varchar(9), n3 integer)")

    def state() -> str:
        with capturing(shop.engine, shop.url) as now:
            tables = [captured(now.table("person"), ["id"], ["id", "n1"])]
            return now.capture.states(tables)[0].state

    def install() -> None:
        with capturing(shop.engine, shop.url) as now:
            tables = [captured(now.table("person"), ["id"], ["id", "n1"])]
            for step in now.capture.install_steps(tables, "shop", marked_by):
                now.capture.do(step)
            assert now.capture.install_steps(tables, "shop", marked_by) == []

    well = "captured" if marked_by == "triggers" else "services"
    install()
    for harmless in ("ADD COLUMN n4 integer", "DROP COLUMN n3", "RENAME COLUMN n4 TO n5"):
        shop.run(f"ALTER TABLE person {harmless}")
        assert state() == well
    shop.run(*(f"ALTER TABLE person RENAME COLUMN {names}" for names in ("n1 TO x", "n2 TO n1", "x TO n2")))
    assert state() == "stale"
    install()
    assert state() == well
