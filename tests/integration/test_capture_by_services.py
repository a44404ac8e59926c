"""Capture without triggers on real databases: our tables alone, what still stands against it, and the way to triggers."""

from __future__ import annotations

import secrets
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from migrator.cli.text import alembic_text, sql_text
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.table import KeyAttribute, TableDesign
from migrator.runtime.errors import SettingsError
from migrator.runtime.values import replace
from migrator.stages.live.capture import CaptureStage, still_fits
from tests import pins
from tests.support_capture import Capturing, capturing
from tests.support_source import plan_of

DESIGN = TableDesign("T", (KeyAttribute("PK"),), "type", ttl="expiresAt")
SCHEMA = [
    "CREATE TABLE customer (id integer PRIMARY KEY, name varchar(40))",
    "CREATE TABLE orders (id integer PRIMARY KEY, customer_id integer)",
]


def plans(shop: Capturing) -> list[EntityPlan]:
    found = [plan_of(shop.table(name)) for name in ("customer", "orders")]
    return [replace(plan, entity=replace(plan.entity, key=()), slots=plan.slots) for plan in found]


def by_services(shop: Capturing) -> CaptureStage:
    return CaptureStage(shop.capture, "shop", DESIGN, "services")


def by_triggers(shop: Capturing) -> CaptureStage:
    return CaptureStage(shop.capture, "shop", DESIGN)


def states(shop: Capturing) -> list[str]:
    return [one.state for one in by_triggers(shop).status(plans(shop)).tables]


def run_sql(shop: Capturing, text: str) -> None:
    with shop.service() as service:
        for statement in text.split(";\n")[:-1]:
            service.execute(statement)


def test_an_install_by_services_makes_our_tables_and_no_trigger(shop: Capturing) -> None:
    done = by_services(shop).install(plans(shop))
    assert (len(done.tables), done.changed, done.new) == (2, (), True)
    shop.run("INSERT INTO customer VALUES (1, 'x')")
    assert shop.left() == []
    status = by_triggers(shop).status(plans(shop))
    assert (status.marked_by, status.whole) == ("services", True)
    assert states(shop) == ["services", "services"]
    first = shop.tickets.draw()
    assert shop.tickets.draw() == first + 1
    assert not by_services(shop).install(plans(shop)).new
    by_triggers(shop).uninstall(shop.marks, discard_marks=False)
    assert shop.capture.installation() is None


@pytest.mark.parametrize("form", ["sql", "alembic"])
def test_printed_sql_equals_an_install_by_services(shop: Capturing, form: str) -> None:
    steps = by_services(shop).steps(plans(shop))
    if form == "sql":
        run_sql(shop, sql_text(steps))
    else:
        text = alembic_text(steps, "shop").replace("from alembic import op\n", "")
        with shop.writing.engine.begin() as op:
            names: dict[str, Any] = {"op": op}
            exec(compile(text, "migration.py", "exec"), names)
            names["upgrade"]()
    assert by_services(shop).steps(plans(shop)) == []
    assert states(shop) == ["services", "services"]


def test_triggers_take_over_from_services_before_the_record_does(shop: Capturing) -> None:
    by_services(shop).install(plans(shop))
    before, ticket = shop.capture.installation(), shop.tickets.draw()
    assert before is not None
    steps = by_triggers(shop).steps(plans(shop))
    assert "marked_by = 'triggers'" in steps[-1].statements[0]
    shop.capture.do(steps[0])
    assert states(shop) == ["captured", "services"]
    assert by_triggers(shop).status(plans(shop)).marked_by == "services"
    done = by_triggers(shop).install(plans(shop))
    assert (done.switched, done.new, done.lost_marks, len(done.changed)) == (True, False, False, 1)
    assert states(shop) == ["captured", "captured"]
    after = shop.capture.installation()
    assert after is not None
    assert (after.marked_by, after.id) == ("triggers", before.id)
    assert shop.tickets.draw() == ticket + 1
    shop.run("INSERT INTO customer VALUES (1, 'x')")
    assert len(shop.left()) == 1
    assert still_fits(shop.capture, before) == replace(after, ticket=ticket + 1)
    assert not by_triggers(shop).install(plans(shop)).switched


def test_the_printed_switch_goes_up_and_down(shop: Capturing) -> None:
    by_services(shop).install(plans(shop))
    steps = by_triggers(shop).steps(plans(shop))
    for step in steps:
        shop.capture.do(step)
    assert states(shop) == ["captured", "captured"]
    for step in reversed(steps):
        shop.capture.do(replace(step, statements=step.undo))
    assert states(shop) == ["services", "services"]


def test_services_do_not_take_over_from_triggers(shop: Capturing) -> None:
    by_triggers(shop).install(plans(shop))
    with pins.refused(SettingsError, "uninstall"):
        by_services(shop).install(plans(shop))
    assert states(shop) == ["captured", "captured"]
    dropped = "migrator.ticket" if shop.engine == "postgresql" else "migrator_ticket"
    shop.run(f"DROP TABLE {dropped}")
    with pins.refused(SettingsError, "here"):
        by_services(shop).install(plans(shop))


def test_process_notices_a_missing_or_changed_installation(shop: Capturing) -> None:
    by_services(shop).install(plans(shop))
    known = shop.capture.installation()
    assert known is not None
    assert still_fits(shop.capture, known) == known
    shop.uninstall()
    with pins.refused(SettingsError, "installed"):
        still_fits(shop.capture, known)
    by_services(shop).install(plans(shop))
    with pins.refused(SettingsError, "began"):
        still_fits(shop.capture, known)
    now = shop.capture.installation()
    assert now is not None
    with pins.refused(SettingsError, "now"):
        still_fits(shop.capture, replace(now, marked_by="triggers"))


def test_dropped_mark_table_is_recreated_by_services(shop: Capturing) -> None:
    by_services(shop).install(plans(shop))
    shop.run("DROP TABLE migrator.mark" if shop.engine == "postgresql" else "DROP TABLE migrator_mark")
    assert by_services(shop).install(plans(shop)).lost_marks
    assert states(shop) == ["services", "services"]


def test_view_and_table_without_ttl_are_refused_by_services(shop: Capturing) -> None:
    shop.run("CREATE VIEW seen AS SELECT id FROM customer")
    view = shop.table("seen")
    stage = replace(by_services(shop), design=replace(DESIGN, ttl=None))
    found = "\n".join(stage.refusals([*plans(shop), plan_of(view, key=(view.columns[0],))]))
    assert "no TTL attribute" in found
    assert pins.said(found)


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
def test_postgresql_user_without_tables_may_install_by_services(shop: Capturing) -> None:
    role = f"poor_{secrets.token_hex(4)}"
    name = urlsplit(shop.url).path[1:]
    shop.run(
        f"CREATE ROLE {role} LOGIN",
        f"GRANT ALL ON customer, orders TO {role}",
        f'GRANT CREATE ON DATABASE "{name}" TO {role}',
    )
    try:
        with capturing("postgresql", _as(shop.url, role, 5432)) as poor:
            assert len(by_triggers(poor).refusals(plans(poor))) == 2
            by_services(poor).install(plans(poor))
            assert states(poor) == ["services", "services"]
            by_triggers(poor).uninstall(poor.marks, discard_marks=False)
    finally:
        shop.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@pytest.mark.parametrize("each", ["mariadb"], indirect=True)
def test_mariadb_services_need_no_trigger_requirements(shop: Capturing) -> None:
    shop.run(
        "CREATE TABLE part (id integer PRIMARY KEY, of_id integer REFERENCES part (id) ON DELETE CASCADE)"
    )
    role, home = f"poor_{secrets.token_hex(4)}", urlsplit(shop.url).path[1:]
    rights = "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP"
    shop.run(f"CREATE USER {role}@'%'", f"GRANT {rights} ON \"{home}\".* TO {role}@'%'")
    try:
        with capturing("mariadb", _as(shop.url, role, 3306)) as poor:
            wanted = [*plans(poor), plan_of(poor.table("part"))]
            against = "\n".join(by_triggers(poor).refusals(wanted))
            assert "lacks TRIGGER" in against
            assert pins.said(against, "circle")
            assert by_services(poor).refusals(wanted) == []
            by_services(poor).install(wanted)
    finally:
        shop.run(f"DROP USER {role}@'%'")
    shop.run("ALTER TABLE customer ENGINE = MyISAM")
    (refusal,) = by_services(shop).refusals(plans(shop))
    assert pins.said(refusal, "transactions")


def _as(url: str, user: str, port: int) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{user}@{parts.hostname}:{parts.port or port}"))
