"""Foreign keys that change rows by themselves in schemas as they are: tables that refer to each other, to themselves, by several columns.

Every row that a statement changed has a mark, on every engine; on MariaDB and MySQL, where triggers of parents leave them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from migrator.mapping.model.facts import Captured
from tests import pins
from tests.support_capture import Capturing, captured, capturing

RENTALS = [
    "CREATE TABLE city (id integer PRIMARY KEY, name varchar(20))",
    """CREATE TABLE shop (id integer PRIMARY KEY, leader_id integer NOT NULL, city_id integer NOT NULL,
       CONSTRAINT shop_city FOREIGN KEY (city_id) REFERENCES city (id) ON DELETE RESTRICT ON UPDATE CASCADE)""",
    """CREATE TABLE clerk (id integer PRIMARY KEY, shop_id integer NOT NULL, name varchar(20),
       CONSTRAINT clerk_shop FOREIGN KEY (shop_id) REFERENCES shop (id) ON DELETE RESTRICT ON UPDATE CASCADE)""",
    """CREATE TABLE copy (id integer PRIMARY KEY, shop_id integer NOT NULL,
       CONSTRAINT copy_shop FOREIGN KEY (shop_id) REFERENCES shop (id) ON DELETE CASCADE ON UPDATE CASCADE)""",
    """CREATE TABLE loan (id integer PRIMARY KEY, copy_id integer, clerk_id integer,
       CONSTRAINT loan_copy FOREIGN KEY (copy_id) REFERENCES copy (id) ON DELETE CASCADE ON UPDATE CASCADE,
       CONSTRAINT loan_clerk FOREIGN KEY (clerk_id) REFERENCES clerk (id) ON DELETE SET NULL ON UPDATE CASCADE)""",
    "INSERT INTO city VALUES (1, 'Here'), (2, 'There')",
    "INSERT INTO shop VALUES (1, 1, 1), (2, 3, 2)",
    "INSERT INTO clerk VALUES (1, 1, 'a'), (2, 1, 'b'), (3, 2, 'c')",
    "INSERT INTO copy VALUES (11, 1), (12, 1), (21, 2)",
    "INSERT INTO loan VALUES (1, 11, 1), (2, 12, 2), (3, 21, 3), (4, NULL, 1)",
]
LED = """ALTER TABLE shop ADD CONSTRAINT shop_leader FOREIGN KEY (leader_id) REFERENCES clerk (id)
         ON DELETE RESTRICT ON UPDATE CASCADE"""
STAFF = [
    "CREATE TABLE unit (firm integer, no integer, name varchar(20), PRIMARY KEY (firm, no))",
    """CREATE TABLE person (firm integer, no integer, boss_no integer, mentor integer UNIQUE, PRIMARY KEY (firm, no),
       CONSTRAINT person_mentor FOREIGN KEY (boss_no) REFERENCES person (mentor) ON DELETE SET NULL)""",
    """CREATE TABLE works (firm integer, person_no integer, unit_no integer, since date,
       PRIMARY KEY (firm, person_no, since),
       CONSTRAINT works_person FOREIGN KEY (firm, person_no) REFERENCES person (firm, no)
           ON DELETE CASCADE ON UPDATE CASCADE,
       CONSTRAINT works_unit FOREIGN KEY (firm, unit_no) REFERENCES unit (firm, no) ON DELETE CASCADE ON UPDATE CASCADE)""",
    """CREATE TABLE pay (firm integer, person_no integer, since date, amount integer, PRIMARY KEY (firm, person_no, since),
       CONSTRAINT pay_works FOREIGN KEY (firm, person_no, since) REFERENCES works (firm, person_no, since)
           ON DELETE CASCADE ON UPDATE CASCADE)""",
    "INSERT INTO unit VALUES (1, 10, 'x'), (1, 20, 'y'), (2, 10, 'z')",
    "INSERT INTO person VALUES (1, 1, NULL, 100)",
    "INSERT INTO person VALUES (1, 2, 100, 200), (1, 3, 100, NULL), (2, 1, 200, NULL)",
    """INSERT INTO works VALUES (1, 1, 10, '2020-01-01'), (1, 1, 20, '2021-01-01'), (1, 2, 10, '2020-01-01'),
       (2, 1, 10, '2020-01-01')""",
    "INSERT INTO pay VALUES (1, 1, '2020-01-01', 5), (1, 1, '2021-01-01', 6), (2, 1, '2020-01-01', 7)",
]


@pytest.fixture
def source(each: Capturing) -> Capturing:
    return each


def made_of(source: Capturing, schema: list[str], *more: str) -> list[Captured]:
    """The schema's tables, all of them captured."""
    source.run(*schema, *more)
    facts = source.source.facts().tables
    names = [statement.split()[2] for statement in schema if statement.startswith("CREATE TABLE")]
    tables = [captured(facts[name], [one.name for one in facts[name].columns]) for name in names]
    assert source.capture.refusals(tables) == []
    source.install(*tables)
    return tables


def rentals(source: Capturing) -> list[Captured]:
    if source.engine != "sqlite":
        return made_of(source, RENTALS, LED)
    # SQLite adds no foreign key later, and needs none to be there before the rows.
    led = RENTALS[1].replace(
        "NOT NULL, city_id", "NOT NULL REFERENCES clerk (id) ON UPDATE CASCADE ON DELETE RESTRICT, city_id"
    )
    return made_of(source, ["PRAGMA foreign_keys = OFF", RENTALS[0], led, *RENTALS[2:]])


Row = tuple[str, tuple[str, ...]]
"""(table, all of its values)."""


def held(source: Capturing, tables: list[Captured]) -> set[Row]:
    found: set[Row] = set()
    with source.service() as service:
        for one in tables:
            rows = service.execute(f"SELECT {', '.join(one.columns)} FROM {one.table.real}")
            found |= {_row(one.name, row) for row in (service if source.engine == "mariadb" else rows)}
    return found


def _row(table: str, values: Any) -> Row:
    return table.rpartition(".")[2], tuple(str(value) for value in values)


def changed_rows_are_marked(source: Capturing, tables: list[Captured], statement: str, *, rows: int) -> None:
    """`rows`: how many the statement changes or takes away, counted by hand."""
    places = {one.table.real: [one.columns.index(name) for name in one.table.primary_key] for one in tables}

    def keys(found: set[Row]) -> set[Row]:
        return {(table, tuple(values[place] for place in places[table])) for table, values in found}

    source.left()
    before = held(source, tables)
    source.run(statement)
    after, marks = held(source, tables), source.left()
    gone, new = before - after, after - before
    assert len(gone) == rows
    columns = {one.name: one.columns for one in tables}

    def rows_of(images: Iterable[tuple[str, Mapping[str, Any] | None]]) -> set[Row]:
        """MySQL keeps the names of a JSON object in an order of its own."""
        return {_row(table, [image[name] for name in columns[table]]) for table, image in images if image}

    was = rows_of((one.table, one.before) for one in marks)
    became = rows_of((one.table, one.after) for one in marks)
    assert gone <= was
    # A row that a statement changes twice has a mark of the state between; no other row has any.
    assert keys(was) == keys(gone)
    # A row that only lost its parent is found by what it was.
    assert keys(new) <= keys(became) | keys(was)


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        # The shop, its clerks and copies; their keys stay, and so do the loans.
        ("UPDATE shop SET id = 9 WHERE id = 1", 1 + 2 + 2),
        # The clerk, the shop that she leads, her loans.
        ("UPDATE clerk SET id = 9 WHERE id = 1", 1 + 1 + 2),
        ("UPDATE city SET id = 9 WHERE id = 2", 1 + 1),
        ("UPDATE copy SET id = 99 WHERE id = 11", 1 + 1),
        ("DELETE FROM copy WHERE shop_id = 1", 2 + 2),
        ("DELETE FROM clerk WHERE id = 2", 1 + 1),
        # The statement reads the table that the foreign key changes.
        ("DELETE FROM copy WHERE id IN (SELECT copy_id FROM loan WHERE clerk_id = 3)", 1 + 1),
        ("DELETE FROM clerk WHERE id IN (SELECT clerk_id FROM loan WHERE id = 2)", 1 + 1),
    ],
)
def test_shops_and_clerks_that_refer_to_each_other(source: Capturing, statement: str, rows: int) -> None:
    changed_rows_are_marked(source, rentals(source), statement, rows=rows)


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        # The person, two that she leads, two times that she worked, and what was paid for them.
        ("DELETE FROM person WHERE firm = 1 AND no = 1", 1 + 2 + 2 + 2),
        ("DELETE FROM person WHERE no < 9", 4 + 4 + 3),
        ("DELETE FROM unit WHERE firm = 1 AND no = 10", 1 + 2 + 1),
        # unit.no is half of a key: times worked change, and none of their key.
        ("UPDATE unit SET no = 11 WHERE firm = 1 AND no = 10", 1 + 2),
        # MySQL 9.7 itself refuses this one (1452): it comes to `pay` before `works` has its new key.
        pytest.param(
            "UPDATE person SET no = 7 WHERE firm = 1 AND no = 1", 1 + 2 + 2, marks=pytest.mark.mariadb
        ),
        ("UPDATE works SET since = '2019-01-01' WHERE firm = 2", 1 + 1),
    ],
)
def test_self_referencing_rows_and_composite_keys_are_marked(
    source: Capturing, statement: str, rows: int
) -> None:
    changed_rows_are_marked(source, made_of(source, STAFF), statement, rows=rows)


def test_circle_of_deletions_is_refused_with_its_foreign_keys(mysql_database: str) -> None:
    with capturing("mariadb", mysql_database) as made:
        made.run(
            "CREATE TABLE house (id integer PRIMARY KEY, main_room integer)",
            """CREATE TABLE room (id integer PRIMARY KEY, house_id integer,
               CONSTRAINT room_house FOREIGN KEY (house_id) REFERENCES house (id) ON DELETE CASCADE)""",
            """ALTER TABLE house ADD CONSTRAINT house_main FOREIGN KEY (main_room) REFERENCES room (id)
               ON DELETE CASCADE""",
            """CREATE TABLE bed (id integer PRIMARY KEY, room_id integer,
               CONSTRAINT bed_room FOREIGN KEY (room_id) REFERENCES room (id) ON DELETE SET NULL)""",
            """CREATE TABLE street (id integer PRIMARY KEY, house_id integer,
               CONSTRAINT street_house FOREIGN KEY (house_id) REFERENCES house (id) ON UPDATE CASCADE)""",
        )
        names = ("house", "room", "bed", "street")
        refusals = made.capture.refusals([captured(made.table(name), ["id"]) for name in names])
        assert [one.split(":")[0] for one in refusals] == ["table house", "table room", "table bed"]
        assert all("house_main of house" in one and "room_house of room" in one for one in refusals)
        assert not any("bed_room" in one for one in refusals)


def test_updates_returning_to_a_table_are_refused_by_the_server(mysql_database: str) -> None:
    """InnoDB updates no table twice in one line of cascades: such an update fails, so no mark can be missing."""
    with capturing("mariadb", mysql_database) as made:
        made.run(
            """CREATE TABLE part (firm integer, id integer, of_id integer, PRIMARY KEY (firm, id),
               FOREIGN KEY (firm, of_id) REFERENCES part (firm, id) ON DELETE RESTRICT ON UPDATE CASCADE)""",
            "INSERT INTO part VALUES (1, 1, NULL), (1, 2, 1)",
        )
        table = captured(made.table("part"), ["firm", "id", "of_id"])
        assert made.capture.refusals([table]) == []
        made.install(table)
        with made.service() as service, pins.refused(Exception):
            service.execute("UPDATE part SET id = 9 WHERE id = 1")
        assert made.left() == []
        made.run("UPDATE part SET id = 9 WHERE id = 2")
        assert len(made.left()) == 1
