"""Which users and programs change tables, as each engine reports it, on the real ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from migrator.mapping.model.live import ActivityCounts
from migrator.runtime.errors import SourceError
from migrator.runtime.values import replace
from migrator.source.capture.install import SqlActivity
from tests import pins
from tests.support_capture import Capturing, captured, capturing

SCHEMA = [
    "CREATE TABLE customer (id integer PRIMARY KEY, name varchar(40))",
    "CREATE TABLE orders (id integer PRIMARY KEY, customer_id integer, FOREIGN KEY (customer_id) REFERENCES customer (id))",
    "CREATE VIEW names AS SELECT name FROM customer",
]


@pytest.fixture
def activity(shop: Capturing) -> SqlActivity:
    return SqlActivity(shop.writing)


def tables(shop: Capturing) -> list[str]:
    return [captured(shop.table(name), ["id"]).name for name in ("customer", "orders")]


def changed(before: ActivityCounts, after: ActivityCounts) -> set[str]:
    return {name.rpartition(".")[2] for name, seen in after.tables.items() if before.tables.get(name) != seen}


def test_a_change_is_seen_by_the_engine_or_by_its_mark(shop: Capturing, activity: SqlActivity) -> None:
    shop.install(captured(shop.table("customer"), ["id"]))
    names = tables(shop)
    before = activity.look(names)
    # Transactions of other tests on the server come and go.
    again = activity.look(names)
    assert replace(again, open=None, who={}) == replace(before, open=None, who={})
    shop.run("INSERT INTO customer VALUES (1, 'Ann')")
    ends_at = time.monotonic() + 120
    expected = set() if shop.engine == "sqlite" else {"customer"}
    while changed(before, after := activity.look(names)) != expected:
        # Statistics of PostgreSQL's are told after a second, the number of the last mark at once.
        assert time.monotonic() < ends_at
        time.sleep(0.2)
    assert bool(after.blind) == (shop.engine == "sqlite")
    if before.whole is not None:
        assert after.whole == before.whole + 1
    assert {name.rpartition(".")[2]: count for name, count in activity.waiting([]).items()} == {"customer": 1}


def test_processed_marks_are_still_counted(shop: Capturing, activity: SqlActivity) -> None:
    shop.install(captured(shop.table("customer"), ["id"]))
    shop.run("INSERT INTO customer VALUES (1, 'Ann')", "DELETE FROM customer")
    assert len(shop.left()) == 2
    # MariaDB counts by table, and tells late where its next number stands.
    assert activity.look(tables(shop)).whole == (None if shop.engine == "mariadb" else 2)


def test_without_capture_no_mark_is_counted(activity: SqlActivity, shop: Capturing) -> None:
    assert activity.look(tables(shop)).whole is None


def own(shop: Capturing, service: Any, found: ActivityCounts) -> dict[str, str]:
    """What is open of this service's; MariaDB lists the whole server, and other tests write there too."""
    opened = dict(found.open or {})
    if shop.engine != "mariadb":
        return opened
    service.execute(
        "SELECT trx_id FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id = CONNECTION_ID()"
    )
    ours = {str(row[0]) for row in service.fetchall()}
    return {id_: table for id_, table in opened.items() if id_ in ours}


def test_a_transaction_that_has_written_and_not_ended_is_seen(shop: Capturing, activity: SqlActivity) -> None:
    shop.run("INSERT INTO customer VALUES (1, 'Ann')")
    names = tables(shop)
    found: dict[str, str] = {}
    if shop.engine == "sqlite":
        activity = SqlActivity(shop.writing.at_once())
    with shop.service() as other, shop.service() as reader:
        assert own(shop, other, activity.look(names)) == {}
        reader.execute("BEGIN")
        reader.execute("SELECT name FROM customer")
        other.execute("BEGIN")
        other.execute("UPDATE customer SET name = 'Bob'")
        if shop.engine == "sqlite":
            # It lets no other program write, and this look is to be the only one.
            with pins.refused(SourceError):
                activity.look(names)
        else:
            # MariaDB remembers its list for a tenth of a second.
            time.sleep(0.3)
            found = own(shop, other, activity.look(names))
            by_table = {"postgresql": "public.customer", "mariadb": ""}
            assert list(found.values()) == [by_table[shop.engine]]
            assert own(shop, other, activity.look(names)) == found
            if shop.engine == "postgresql":
                assert activity.look([names[1]]).open == {}
        other.execute("COMMIT")
        time.sleep(0.3)
        assert not set(found) & set(activity.look(names).open or {})


@contextmanager
def plain_user(shop: Capturing) -> Iterator[tuple[str, Capturing]]:
    """A user that may read all tables, and its connections."""
    user = f"u{uuid4().hex[:12]}"
    parts = urlsplit(shop.url)
    if shop.engine == "postgresql":
        shop.run(f"CREATE USER {user} PASSWORD 'x'", f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {user}")
    else:
        shop.run(
            f"CREATE USER {user}@'%' IDENTIFIED BY 'x'", f"GRANT SELECT ON `{parts.path[1:]}`.* TO {user}@'%'"
        )
    url = parts._replace(netloc=f"{user}:x@{parts.netloc.rpartition('@')[2]}").geturl()
    try:
        with capturing(shop.engine, url) as theirs:
            yield user, theirs
    finally:
        shop.run(*([f"DROP OWNED BY {user}"] if shop.engine == "postgresql" else []), f"DROP USER {user}")


def test_user_without_rights_to_see_transactions_is_notified(shop: Capturing) -> None:
    if shop.engine == "sqlite":
        return
    names = tables(shop)
    with plain_user(shop) as (_, theirs), shop.service() as other:
        other.execute("BEGIN")
        other.execute("INSERT INTO customer VALUES (7, 'Ann')")
        found = SqlActivity(theirs.writing).look(names)
        assert (found.open is None) == (shop.engine == "mariadb")
        assert ("GRANT PROCESS" in found.unseen) == (shop.engine == "mariadb")
        if shop.engine == "postgresql":
            assert list((found.open or {}).values()) == ["public.customer"]
        other.execute("ROLLBACK")


def test_user_without_tables_is_shown_the_rights_to_revoke(shop: Capturing) -> None:
    if shop.engine == "sqlite":
        return
    with plain_user(shop) as (writer, _), plain_user(shop) as (_, theirs):
        whole = "GRANT INSERT, UPDATE ON customer TO"
        shop.run(f"{whole} {writer}{'@' + repr('%') if shop.engine == 'mariadb' else ''}")
        statements = SqlActivity(theirs.writing).read_only(tables(shop))
        mine = [one for one in statements if one.startswith("REVOKE") and writer in one]
        if shop.engine == "postgresql":
            assert mine == [f"REVOKE INSERT, UPDATE ON public.customer FROM {writer}"]
        else:
            # information_schema shows no user the rights of others, so they are said to be missing.
            assert mine == []
            assert pins.said("".join(statements))
            assert "shown its own" not in "".join(SqlActivity(shop.writing).read_only(tables(shop)))


def test_a_table_with_a_dot_in_its_name_is_found(shop: Capturing, activity: SqlActivity) -> None:
    shop.run('CREATE TABLE "or.der" (id integer PRIMARY KEY)')
    name = captured(shop.table("or.der"), ["id"]).name
    shop.install(captured(shop.table("or.der"), ["id"]))
    before = activity.look([name])
    assert list(before.tables) == ([] if shop.engine == "sqlite" else [name])
    if shop.engine != "sqlite":
        with plain_user(shop) as (writer, _):
            shop.run(
                f'GRANT INSERT ON "or.der" TO {writer}{"@" + repr("%") if shop.engine == "mariadb" else ""}'
            )
            revoked = [one for one in activity.read_only([name]) if writer in one]
            assert len(revoked) == 1
            assert ("`or.der`" if shop.engine == "mariadb" else 'public."or.der"') in revoked[0]
            shop.run(*revoked)
    shop.run(*activity.drops([name]))
    assert "or.der" not in shop.source.facts().tables


@pytest.fixture
def parts(postgres_database: str) -> Iterator[Capturing]:
    """A partitioned table of two levels."""
    with capturing("postgresql", postgres_database) as made:
        made.run(
            "CREATE TABLE orders (id integer, day integer, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
            "CREATE TABLE old PARTITION OF orders FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (day)",
            "CREATE TABLE oldest PARTITION OF old FOR VALUES FROM (0) TO (5)",
        )
        yield made


def test_read_only_revokes_column_partition_and_granted_rights(parts: Capturing) -> None:
    with plain_user(parts) as (one, _), plain_user(parts) as (other, _):
        parts.run(
            f"GRANT UPDATE (day) ON orders TO {one}", f"GRANT INSERT ON oldest TO {one} WITH GRANT OPTION"
        )
        with parts.service() as service:
            service.execute(f"SET ROLE {one}")
            service.execute(f"GRANT INSERT ON oldest TO {other}")
        activity = SqlActivity(parts.writing)
        mine = [text for text in activity.read_only(["public.orders"]) if one in text or other in text]
        assert mine == [
            f"REVOKE INSERT ON public.oldest FROM {min(one, other)}{' CASCADE' if one < other else ''}",
            f"REVOKE INSERT ON public.oldest FROM {max(one, other)}{' CASCADE' if one > other else ''}",
            f"REVOKE UPDATE ON public.orders FROM {one}",
        ]
        parts.run(*mine)
        left = activity.read_only(["public.orders"])
        assert not [text for text in left if one in text or other in text]


def test_partitioned_table_changes_if_a_partition_does(parts: Capturing) -> None:
    activity, names = SqlActivity(parts.writing), ["public.orders"]
    before = activity.look(names)
    with parts.service() as service:
        service.execute("SET application_name = 'nightly batch'")
        service.execute("BEGIN")
        service.execute("INSERT INTO oldest VALUES (1, 1)")
        seen = activity.look(names)
        assert list((seen.open or {}).values()) == ["public.orders"]
        assert [who.rpartition(" (")[2] for who in seen.who.values()] == ["nightly batch)"]
        service.execute("COMMIT")
    ends_at = time.monotonic() + 120
    while changed(before, after := activity.look(names)) != {"orders"}:
        assert time.monotonic() < ends_at
        time.sleep(0.2)
    assert after.open == after.who == {}


def test_users_that_may_write_a_table_are_reported(shop: Capturing, activity: SqlActivity) -> None:
    if shop.engine != "postgresql":
        return
    with plain_user(shop) as (writer, theirs):
        shop.run(f"GRANT DELETE ON orders TO {writer}")
        found = SqlActivity(theirs.writing).look(tables(shop))
        assert writer in found.may_write["public.orders"]
        assert writer not in found.may_write["public.customer"]


def test_views_are_distinguished(activity: SqlActivity) -> None:
    assert activity.views() == {"names"}


def test_sql_of_the_end_runs_as_described(shop: Capturing, activity: SqlActivity) -> None:
    role = f"writer_{shop.url[-8:]}".replace("-", "_").replace("/", "_").replace(".", "_")
    if shop.engine == "postgresql":
        shop.run(f'CREATE ROLE "{role}"', f'GRANT SELECT, INSERT, UPDATE ON customer TO "{role}"')
    elif shop.engine == "mariadb":
        shop.run(f"CREATE USER '{role}'@'%'", f"GRANT SELECT, INSERT, UPDATE ON customer TO '{role}'@'%'")
    try:
        statements = activity.read_only(tables(shop))
        real = [one for one in statements if not one.startswith("--")]
        mine = [one for one in real if role in one]
        assert bool(mine) == (shop.engine != "sqlite")
        shop.run(*mine)
        assert not [one for one in activity.read_only(tables(shop)) if role in one]
    finally:
        if shop.engine == "postgresql":
            shop.run(f'DROP OWNED BY "{role}"', f'DROP ROLE "{role}"')
        elif shop.engine == "mariadb":
            shop.run(f"DROP USER '{role}'@'%'")
    shop.run("DROP VIEW names", *activity.drops(tables(shop)))
    assert not {"customer", "orders"} & set(shop.source.facts().tables)
