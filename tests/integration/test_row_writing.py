"""Rows written into a real source: exact values of every type, refusals as answers, deletes that take no children."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from migrator.mapping.inverse.rows import compile_inverse
from migrator.mapping.items.items import items_for
from migrator.mapping.items.wire import decode_item, encode_item
from migrator.mapping.model.facts import SchemaFacts
from migrator.mapping.model.live import IntendedRow
from migrator.runtime.errors import RowError, StoppedError
from migrator.runtime.retry import Retry
from migrator.source.engines.base import ConnectionOptions
from migrator.source.engines.connect import address_of, source_url
from migrator.source.reader import SqlSource
from migrator.source.sql.row_writing import SqlRowWriter
from migrator.stages.session.source import secret_providers
from tests.fakes.reverse import FakeRowWriter
from tests.language import test_types_mariadb, test_types_postgresql, test_types_sqlite
from tests.language.conftest import database_on
from tests.language.context import HEAD, checked, open_source
from tests.language.typed import Case, script_of
from tests.support_capture import connect
from tests.support_inverse import rows_for
from tests.support_mysql import run_script

ENGINES = [pytest.param("sqlite"), pytest.param("postgresql"), "mariadb"]
SCRIPT = """
CREATE TABLE parent (id {counter}, name VARCHAR(10) NOT NULL, amount DECIMAL(6, 2), CHECK (amount >= 0));
CREATE UNIQUE INDEX parent_name ON parent (name);
CREATE TABLE child (parent_id INTEGER NOT NULL, no INTEGER NOT NULL, at {moment}, PRIMARY KEY (parent_id, no),
    FOREIGN KEY (parent_id) REFERENCES parent (id) ON DELETE CASCADE);
CREATE TABLE seat (id INTEGER PRIMARY KEY, guest VARCHAR(10));
CREATE UNIQUE INDEX seat_guest ON seat (guest);
CREATE TABLE node (id INTEGER PRIMARY KEY, up INTEGER, FOREIGN KEY (up) REFERENCES node (id) ON DELETE CASCADE);
"""
WORDS = {
    "sqlite": {"counter": "INTEGER PRIMARY KEY AUTOINCREMENT", "moment": "TIMESTAMP"},
    "postgresql": {"counter": "INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "moment": "TIMESTAMP(3)"},
    "mariadb": {"counter": "INTEGER AUTO_INCREMENT PRIMARY KEY", "moment": "DATETIME(3)"},
}


def nothing() -> None:
    """No other process has the work."""


class Written:
    """One database, read and written."""

    def __init__(self, url: str, schemas: Sequence[str] = ()) -> None:
        self.url = url
        self.source = SqlSource(source_url(url), schemas=schemas)
        address = address_of(url, (), secret_providers(Path()))
        self.facts = self.source.facts()
        self.writer = SqlRowWriter(address, ConnectionOptions(pool_size=1), Retry(), self.facts)

    def put(self, table: str, key: Sequence[str], **values: Any) -> IntendedRow:
        return IntendedRow(self.facts.tables[table], {name: values[name] for name in key}, values)

    def gone(self, table: str, **key: Any) -> IntendedRow:
        return IntendedRow(self.facts.tables[table], key, None)

    def write(self, *changes: IntendedRow) -> list[tuple[str, str]]:
        return [(one.change.table.name, one.kind) for one in self.writer.write(changes, nothing)]

    def rows(self, table: str, order: str = "1") -> list[tuple[Any, ...]]:
        return self.source.query(f"SELECT * FROM {table} ORDER BY {order}", {})

    def close(self) -> None:
        self.source.close()
        self.writer.close()


class Remembered(Written):
    """The fake that tests of stages write to."""

    def __init__(self, facts: SchemaFacts) -> None:
        self.url = ""
        self.facts = facts
        self.fake = FakeRowWriter(facts, {name: [] for name in facts.tables})
        self.writer = self.fake  # type: ignore[assignment]

    def rows(self, table: str, order: str = "1") -> list[tuple[Any, ...]]:
        columns = [column.real for column in self.facts.tables[table].columns]
        return sorted(tuple(row[name] for name in columns) for row in self.fake.rows[table])

    def close(self) -> None:
        return


@pytest.fixture(params=["memory", *ENGINES])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Written]:
    if request.param == "memory":
        source = SqlSource(
            source_url(database_on("sqlite", request, tmp_path)(SCRIPT.format(**WORDS["sqlite"])))
        )
        yield Remembered(source.facts())
        source.close()
        return
    url = database_on(request.param, request, tmp_path)(SCRIPT.format(**WORDS[request.param]))
    shop = Written(url)
    yield shop
    shop.close()


def parent(shop: Written, number: int, name: str, amount: str = "1.00") -> IntendedRow:
    return shop.put("parent", ["id"], id=number, name=name, amount=Decimal(amount))


CIRCLES = """
CREATE TABLE team (id INTEGER PRIMARY KEY, captain INTEGER);
CREATE TABLE player (id INTEGER PRIMARY KEY, team INTEGER NOT NULL, FOREIGN KEY (team) REFERENCES team (id));
CREATE TABLE pair (id INTEGER PRIMARY KEY, other INTEGER, FOREIGN KEY (other) REFERENCES pair (id));
CREATE TABLE ring (id INTEGER PRIMARY KEY, next INTEGER NOT NULL, FOREIGN KEY (next) REFERENCES ring (id) ON DELETE CASCADE{deferred});
{also}
"""
CAPTAIN = "ALTER TABLE team ADD FOREIGN KEY (captain) REFERENCES player (id);"
DEFERRED = {
    "sqlite": {"deferred": "", "also": ""},
    "postgresql": {"deferred": " DEFERRABLE", "also": CAPTAIN},
    "mariadb": {"deferred": "", "also": CAPTAIN},
}


@pytest.fixture(params=ENGINES)
def circles(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Written]:
    """Tables whose rows refer to each other. SQLite adds no foreign key to a table that is there."""
    script = CIRCLES.format(**DEFERRED[request.param])
    if request.param == "sqlite":
        captain = "captain INTEGER REFERENCES player (id)"
        script = script.replace("captain INTEGER", captain)
    shop = Written(database_on(request.param, request, tmp_path)(script))
    yield shop
    shop.close()


def test_rows_referring_to_each_other_are_written_together(circles: Written) -> None:
    def team(number: int, captain: int | None) -> IntendedRow:
        return circles.put("team", ["id"], id=number, captain=captain)

    def player(number: int, team: int) -> IntendedRow:
        return circles.put("player", ["id"], id=number, team=team)

    def pair(number: int, other: int | None) -> IntendedRow:
        return circles.put("pair", ["id"], id=number, other=other)

    changes = [team(1, 11), player(11, 1), player(12, 1), team(2, 21), player(31, 3), player(21, 2)]
    assert circles.write(*changes, pair(1, 2), pair(2, 3), pair(3, 1), pair(9, 8)) == [
        ("player", "foreign key"),
        ("pair", "foreign key"),
    ]
    assert circles.rows("team") == [(1, 11), (2, 21)]
    assert circles.rows("player") == [(11, 1), (12, 1), (21, 2)]
    assert circles.rows("pair") == [(1, 2), (2, 3), (3, 1)]
    gone = [circles.gone("team", id=1), circles.gone("player", id=11), circles.gone("pair", id=1)]
    assert circles.write(*gone, circles.gone("team", id=2), circles.gone("player", id=21)) == [
        ("team", "foreign key"),
        ("player", "foreign key"),
        ("pair", "foreign key"),
    ]
    # A row that stays refers to them; nothing of them changed.
    assert circles.rows("team") == [(1, 11)]
    assert circles.rows("player") == [(11, 1), (12, 1)]
    assert circles.rows("pair") == [(1, 2), (2, 3), (3, 1)]


def test_not_null_foreign_key_is_deferred_if_deferrable(
    circles: Written, request: pytest.FixtureRequest
) -> None:
    ring = [circles.put("ring", ["id"], id=number, next=1 + number % 3) for number in (1, 2, 3)]
    can = "mariadb" not in request.node.name
    assert circles.write(*ring) == ([] if can else [("ring", "foreign key")] * 3)
    assert circles.rows("ring") == ([(1, 2), (2, 3), (3, 1)] if can else [])
    if not can:
        return
    gone = [circles.gone("ring", id=number) for number in (1, 2, 3)]
    assert circles.write(circles.put("ring", ["id"], id=4, next=1)) == []
    # A row that stays refers to one of them, and would be taken along.
    for some in (gone[:2], gone):
        assert circles.write(*some) == [("ring", "foreign key")] * len(some)
        assert circles.rows("ring") == [(1, 2), (2, 3), (3, 1), (4, 1)]
    assert circles.write(*gone, circles.gone("ring", id=4)) == []
    assert circles.rows("ring") == []


def test_a_row_is_made_and_changed_and_deleted(shop: Written) -> None:
    assert shop.write(parent(shop, 0, "nought"), parent(shop, 7, "a"), parent(shop, 7, "b", "2.50")) == []
    assert [row[:2] for row in shop.rows("parent")] == [(0, "nought"), (7, "b")]
    assert Decimal(str(shop.rows("parent")[1][2])) == Decimal("2.5")
    assert shop.write(shop.gone("parent", id=7), shop.gone("parent", id=7)) == []
    assert [row[0] for row in shop.rows("parent")] == [0]


def test_rows_that_swap_a_unique_value_are_written_together(shop: Written) -> None:
    def seat(number: int, guest: str | None) -> IntendedRow:
        return shop.put("seat", ["id"], id=number, guest=guest)

    assert shop.write(*(seat(number, guest) for number, guest in enumerate("abcd"))) == []
    assert shop.write(seat(0, "b"), seat(1, "c"), seat(2, "a")) == []
    assert shop.rows("seat") == [(0, "b"), (1, "c"), (2, "a"), (3, "d")]
    assert shop.write(seat(0, "c"), seat(9, "d"), seat(1, "b")) == [("seat", "unique")]
    assert shop.rows("seat") == [(0, "c"), (1, "b"), (2, "a"), (3, "d")]
    assert shop.write(parent(shop, 1, "a"), parent(shop, 2, "b")) == []
    # A column that may not be NULL.
    swapped = shop.write(parent(shop, 1, "b"), parent(shop, 2, "a"))
    assert swapped == [("parent", "unique")] * 2


def test_refused_row_is_returned_and_the_others_continue(shop: Written) -> None:
    refused = shop.write(
        parent(shop, 1, "a"),
        parent(shop, 2, "a"),
        shop.put("child", ["parent_id", "no"], parent_id=9, no=1, at=None),
        shop.put("parent", ["id"], id=3, name=None, amount=None),
        parent(shop, 5, "e", "0.001"),
        shop.put("parent", ["id"], id=2**70, name="f", amount=None),
        shop.put("child", ["parent_id", "no"], parent_id=1, no=1, at=None),
    )
    kinds = ["unique", "foreign key", "not null", "value", "value"]
    assert [kind for _, kind in refused] == kinds
    assert [row[0] for row in shop.rows("parent")] == [1]
    assert len(shop.rows("child")) == 1


def test_a_check_is_a_refusal_of_the_value(shop: Written) -> None:
    if isinstance(shop, Remembered):
        return  # memory has no CHECK
    assert shop.write(parent(shop, 4, "d", "-1"), parent(shop, 5, "e")) == [("parent", "value")]
    assert [row[0] for row in shop.rows("parent")] == [5]


def test_conflict_in_another_unique_index_changes_no_other_row(shop: Written) -> None:
    shop.write(parent(shop, 1, "a"), parent(shop, 2, "b"))
    assert shop.write(parent(shop, 2, "a", "5.00")) == [("parent", "unique")]
    assert shop.write(parent(shop, 3, "a", "5.00")) == [("parent", "unique")]
    assert [row[:2] for row in shop.rows("parent")] == [(1, "a"), (2, "b")]


def test_a_parent_is_not_deleted_while_it_has_children(shop: Written) -> None:
    shop.write(parent(shop, 1, "a"), shop.put("child", ["parent_id", "no"], parent_id=1, no=1, at=None))
    assert shop.write(shop.gone("parent", id=1)) == [("parent", "foreign key")]
    assert len(shop.rows("child")) == 1
    assert shop.write(shop.gone("child", parent_id=1, no=1), shop.gone("parent", id=1)) == []
    assert shop.rows("parent") == []


def test_a_row_that_refers_to_its_own_table(shop: Written) -> None:
    shop.write(
        shop.put("node", ["id"], id=1, up=1),
        shop.put("node", ["id"], id=2, up=None),
        shop.put("node", ["id"], id=3, up=2),
    )
    assert shop.write(shop.gone("node", id=1), shop.gone("node", id=2)) == [("node", "foreign key")]
    assert [row[0] for row in shop.rows("node")] == [2, 3]


def test_nothing_is_written_without_the_lease(shop: Written) -> None:
    def lost() -> None:
        raise StoppedError("the lease ran out")

    with pytest.raises(StoppedError):
        shop.writer.write([parent(shop, 1, "a")], lost)
    assert shop.rows("parent") == []


def test_counters_go_past_the_highest_key(shop: Written) -> None:
    shop.write(parent(shop, 41, "a"))
    table = shop.facts.tables["parent"]
    shop.writer.move_counters([table])
    shop.writer.move_counters([table])
    if isinstance(shop, Remembered):
        return  # memory numbers no rows
    insert = "INSERT INTO parent (name) VALUES ('new')"
    if shop.url.startswith("sqlite"):
        import sqlite3

        with sqlite3.connect(shop.url.removeprefix("sqlite:///")) as connection:
            connection.execute(insert)
    elif shop.url.startswith("mysql"):
        run_script(shop.url, insert)
    else:
        with psycopg.connect(shop.url) as connection:
            connection.execute(insert)
    assert [row[0] for row in shop.rows("parent")] == [41, 42]


def test_a_counter_of_numbers_with_decimals_moves(postgres_database: str) -> None:
    with psycopg.connect(postgres_database) as connection:
        connection.execute("CREATE SEQUENCE s")
        connection.execute("CREATE TABLE bill (no NUMERIC(10) PRIMARY KEY DEFAULT nextval('s'), at INTEGER)")
    shop = Written(postgres_database)
    assert shop.write(shop.put("bill", ["no"], no=Decimal(41), at=1)) == []
    shop.writer.move_counters([shop.facts.tables["bill"]])
    with psycopg.connect(postgres_database) as connection:
        connection.execute("INSERT INTO bill (at) VALUES (2)")
    assert shop.rows("bill") == [(41, 1), (42, 2)]
    shop.close()


@pytest.mark.mariadb
def test_a_sequence_of_a_columns_default_moves(mysql_database: str) -> None:
    """MariaDB has some since 10.3, MySQL has none."""
    table = "CREATE TABLE bill (no INT PRIMARY KEY DEFAULT (nextval(`a s`)), at INT)"
    run_script(mysql_database, f"CREATE SEQUENCE `a s`; {table}")
    shop = Written(mysql_database)
    assert shop.write(shop.put("bill", ["no"], no=41, at=1)) == []
    for _ in range(2):
        shop.writer.move_counters([shop.facts.tables["bill"]])
    run_script(mysql_database, "INSERT INTO bill (at) VALUES (2)")
    assert shop.rows("bill") == [(41, 1), (42, 2)]
    shop.close()


def test_a_number_that_the_source_alone_gives_is_given_once(postgres_database: str) -> None:
    """An identity beside the key by which items name the row: no UPDATE may name it."""
    with psycopg.connect(postgres_database) as connection:
        connection.execute(
            "CREATE TABLE ware (id INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY, sku TEXT UNIQUE NOT NULL, n INTEGER)"
        )
    shop = Written(postgres_database)
    for n in (1, 2):
        assert shop.write(shop.put("ware", ["sku"], id=5, sku="a", n=n)) == []
    assert shop.rows("ware") == [(5, "a", 2)]
    shop.close()


# ── keys and values that only some sources tell apart ──

ALIKE = {
    "sqlite": "CREATE TABLE {t} (id TEXT COLLATE NOCASE PRIMARY KEY, n INTEGER, doc JSON)",
    "postgresql": "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);"
    " CREATE TABLE {t} (id TEXT COLLATE ci PRIMARY KEY, n INTEGER, doc JSONB)",
    "mariadb": "CREATE TABLE {t} (id VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY, n INTEGER, doc JSON)",
}


@pytest.mark.parametrize("engine", ENGINES)
def test_row_with_an_equal_collated_text_is_left_unchanged(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    shop = Written(database_on(engine, request, tmp_path)(ALIKE[engine].format(t="code")))

    def code(text: str, n: int) -> IntendedRow:
        return shop.put("code", ["id"], id=text, n=n, doc=None)

    assert shop.write(code("ABC", 1), code("ABC", 2)) == []
    assert shop.write(code("abc", 3), shop.gone("code", id="Abc")) == [("code", "unique")]
    assert shop.rows("code") == [("ABC", 2, None)]
    assert shop.write(shop.gone("code", id="ABC"), code("abc", 3)) == []
    assert shop.rows("code") == [("abc", 3, None)]
    shop.close()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_text_that_no_driver_sends_is_a_refusal_of_the_value(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Half a surrogate pair, as JSON in an item's text can spell it."""
    shop = Written(database_on(engine, request, tmp_path)(ALIKE[engine].format(t="code")))
    half = shop.put("code", ["id"], id="a", n=1, doc={"half": "\ud800"})
    assert shop.write(half, shop.put("code", ["id"], id="b", n=1, doc=None)) == [("code", "value")]
    assert shop.rows("code") == [("b", 1, None)]
    shop.close()


def test_a_text_of_a_fixed_length_is_the_same_without_its_spaces(postgres_database: str) -> None:
    with psycopg.connect(postgres_database) as connection:
        connection.execute("CREATE TABLE code (id CHAR(5) PRIMARY KEY, n INTEGER)")
    shop = Written(postgres_database)
    for n, text in enumerate(("ab", "ab   ", "ab")):
        assert shop.write(shop.put("code", ["id"], id=text, n=n)) == []
    assert shop.rows("code") == [("ab   ", 2)]
    assert shop.write(shop.gone("code", id="ab")) == []
    assert shop.rows("code") == []
    shop.close()


# ── triggers of the source's own ──

TOUCHING = {
    "sqlite": "CREATE TRIGGER touch AFTER UPDATE ON parent BEGIN UPDATE parent SET name = 'x' WHERE id = NEW.id; END",
    "postgresql": "CREATE TRIGGER touch BEFORE UPDATE ON parent FOR EACH ROW EXECUTE FUNCTION"
    " suppress_redundant_updates_trigger()",
    "mariadb": "CREATE TRIGGER touch BEFORE UPDATE ON parent FOR EACH ROW SET NEW.name = 'x'",
}


@pytest.mark.parametrize("engine", ENGINES)
def test_trigger_that_may_change_written_rows_is_named(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = database_on(engine, request, tmp_path)(SCRIPT.format(**WORDS[engine]))
    shop = Written(url)
    tables = list(shop.facts.tables.values())
    assert shop.writer.changing_triggers(tables) == {}
    with closing(connect(engine, url)) as service:
        service.cursor().execute(TOUCHING[engine])
    assert shop.writer.changing_triggers(tables) == {"parent": ["touch"]}
    shop.close()


# ── every type ──


def _types_of(engine: str, request: pytest.FixtureRequest) -> tuple[Sequence[Case], str]:
    if engine == "sqlite":
        return test_types_sqlite.CASES, script_of(test_types_sqlite.CASES)
    if engine == "mariadb":
        cases = test_types_mariadb.cases_on(request.getfixturevalue("mysql_url"))
        return cases, f"SET sql_mode = 'ALLOW_INVALID_DATES'; {script_of(cases)}"
    cases = test_types_postgresql.CASES
    return cases, test_types_postgresql.MAKE_TYPES + script_of(cases)


@pytest.mark.parametrize("engine", [pytest.param("sqlite"), "postgresql", "mariadb"])
def test_a_value_of_every_type_comes_back_as_it_was(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    cases, script = _types_of(engine, request)
    url = database_on(engine, request, tmp_path)(script)
    entities = (
        f"  t{n}: {{items: {{T{n}: {{key: ['T{n}#{{id}}', P], keep: all}}}}}}" for n, _ in enumerate(cases)
    )
    text = HEAD + "\n".join(["entities:", *entities])
    mapping = checked(url, text)
    inverse = compile_inverse(mapping.mapping, mapping.plans)
    shop, source, compared = Written(url), open_source(url, text), 0
    for number, (case, entity) in enumerate(zip(cases, mapping.entities, strict=True)):
        (tree,) = source.read_page(entity.plan, None, None)
        try:
            (item,) = [decode_item(encode_item(one)) for one in items_for(entity, tree)]
        except RowError:
            continue
        name = f"t{number}"
        if not (case.comes_back and next(one for one in inverse.tables if one.table == name).invertible):
            continue
        (row,) = rows_for(inverse, [item])[name]
        for changes in (
            [shop.gone(name, id=1), shop.put(name, ["id"], **row)],
            [shop.put(name, ["id"], **row)],
        ):
            assert shop.write(*changes) == [], case
            (again,) = source.read_page(entity.plan, None, None)
            # Not the driver's values: SQLite has several texts for one time, and JSON for one document.
            assert list(items_for(entity, again)) == list(items_for(entity, tree)), case
        compared += 1
    assert compared > len(cases) / 2
    shop.close()
    source.close()
