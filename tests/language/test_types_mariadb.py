"""What a value of each of MariaDB's types becomes, on a real server, and what check says of those that it refuses."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pytest

from migrator.mapping.items.wire import decode, encode
from migrator.runtime.errors import MappingError
from migrator.source.engines.mysql.facts import KINDS
from tests import pins
from tests.language.context import HEAD, checked, items, open_source, plain
from tests.language.typed import Case, Made, assert_golden, made_of, script_of
from tests.support_mysql import is_mariadb, run_script

N = Decimal
NewDatabase = Callable[[], str]
NO_DATE = "years 1 to 9999"
WIDE = "1" * 39
CASES = [
    *(Case(name, "-128", -128) for name in ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT")),
    Case("TINYINT UNSIGNED", "255", 255),
    Case("BIGINT(20) UNSIGNED ZEROFILL", "18446744073709551615", 2**64 - 1),
    Case("BOOLEAN", "TRUE", True, text="true"),
    Case("TINYINT(1)", "2", refused="neither true nor false", text="2"),
    Case("BIT(1)", "b'1'", True),
    Case("BIT(5)", "b'101'", "00101"),
    Case("BIT(64)", "0xFFFFFFFFFFFFFFFF", "1" * 64),
    Case("DECIMAL(24, 4)", "-12345678901234567890.1234", N("-12345678901234567890.1234")),
    Case("NUMERIC(4, 2)", "0.10", N("0.10"), text="0.10"),
    Case("DECIMAL(65, 0)", WIDE, refused="more than 38 digits", text=WIDE),
    Case("DECIMAL(65, 30)", "1.5", N("1.500000000000000000000000000000")),
    Case("FLOAT", "0.1", N("0.1")),
    Case("FLOAT", "16777217", N("16777216")),
    Case("FLOAT", "3.4028234e38", N("3.4028235e38")),
    Case("FLOAT(7, 4)", "1.2", N("1.2")),
    Case("FLOAT UNSIGNED", "1e-20", N("1e-20")),
    Case("DOUBLE", "0.1e0 + 0.2e0", N("0.30000000000000004")),
    Case("DOUBLE", "1.5e308", refused="DynamoDB's range"),
    *(
        Case(name, "' Ünï 🎵 '", " Ünï 🎵 ")
        for name in ("TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "VARCHAR(9)")
    ),
    Case("VARCHAR(9) CHARACTER SET latin1", "'naïve '", "naïve "),
    Case("TEXT COMPRESSED", "'x'", "x"),
    Case("CHAR(4)", "'ab  '", "ab"),
    Case("ENUM('s', 'it''s, #1')", "'it''s, #1'", "it's, #1"),
    Case("ENUM('s')", "'no label'", "", comes_back=False),
    Case("SET('a', 'b(1)', 'c')", "'c,a'", ["a", "c"]),
    Case("SET('a')", "''", []),
    Case("SET('a')", "NULL", None),
    Case("DATE", "'1969-07-20'", "1969-07-20"),
    Case("DATE", "'0000-00-00'", refused=NO_DATE, text="0000-00-00"),
    Case("DATE", "'2024-02-00'", refused=NO_DATE, text="2024-02-00"),
    Case("TIME(6)", "'04:05:06.7'", "04:05:06.700000"),
    Case("TIME", "'-01:00:00'", refused="not a time", text="-01:00:00"),
    Case("TIME", "'24:00:00'", refused="not a time", text="24:00:00"),
    Case("TIME", "'838:59:59'", refused="not a time", text="838:59:59"),
    Case("DATETIME(6)", "'1000-01-01 00:00:00.000001'", "1000-01-01T00:00:00.000001"),
    Case("DATETIME", "'2024-03-31 02:30'", "2024-03-31T02:30:00.000000"),
    Case("DATETIME", "'0000-00-00 00:00:00'", refused=NO_DATE, text="0000-00-00 00:00:00"),
    Case("TIMESTAMP", "'2024-10-27 02:30'", "2024-10-27T01:30:00.000000Z"),
    Case("TIMESTAMP(3) NULL", "'1970-01-01 01:00:01.25'", "1970-01-01T00:00:01.250000Z"),
    Case("TIMESTAMP", "'0000-00-00 00:00:00'", refused=NO_DATE, text="0000-00-00 00:00:00"),
    Case("YEAR", "1901", 1901),
    Case("YEAR", "0000", 0),
    Case("BINARY(3)", "x'61'", b"a\x00\x00"),
    *(
        Case(name, "x'00ff'", b"\x00\xff")
        for name in ("TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB", "VARBINARY(9)")
    ),
    Case("BLOB COMPRESSED", "x'00'", b"\x00"),
    Case("TEXT", "''", ""),
    Case("BLOB", "''", b""),
    Case("JSON", "'null'", None),
    Case("JSON", """'{"a": 1, "b": 2, "a": 3}'""", {"a": 3, "b": 2}),
    Case("JSON", """'{"a": [1.10, null, "x"]}'""", {"a": [N("1.10"), None, "x"]}),
    Case("UUID", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    Case("INET4", "'10.1.2.3'", "10.1.2.3"),
    Case("INET6", "'2001:DB8::1'", "2001:db8::1"),
]
MARIADB_ALONE = ("TEXT COMPRESSED", "BLOB COMPRESSED", "UUID", "INET4", "INET6")
MARKED = [
    pytest.param(case, marks=[pytest.mark.mariadb] if case.declared in MARIADB_ALONE else [])
    for case in CASES
]


def cases_on(url: str) -> list[Case]:
    """Those whose types the server has."""
    return [case for case in CASES if is_mariadb(url) or case.declared not in MARIADB_ALONE]


def database_with(make: NewDatabase, script: str) -> str:
    url = make()
    # At +01:00, and with a mode that lets zero dates in.
    run_script(url, f"SET time_zone = '+01:00'; SET sql_mode = 'ALLOW_INVALID_DATES'; {script}")
    return url


@pytest.fixture(scope="module")
def made(mysql_url: str, new_mysql_database: NewDatabase) -> dict[str, Made]:
    cases = cases_on(mysql_url)
    url = database_with(new_mysql_database, script_of(cases))
    return dict(zip(map(str, cases), made_of(url, cases), strict=True))


@pytest.mark.parametrize("case", MARKED, ids=str)
def test_a_value_of_a_type(made: dict[str, Made], case: Case) -> None:
    assert_golden(case, made[str(case)])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_value_survives_the_wire(case: Case) -> None:
    assert decode(encode(case.expected)) == case.expected


def test_every_type_with_a_rule_has_a_golden_case() -> None:
    tested = {case.declared.partition("(")[0].split()[0].upper() for case in CASES}
    named = {name.partition("(")[0] for name, kind in KINDS.named.items() if kind.name != "unknown"}
    assert named - tested == set()


SHAPES = (
    "geometry",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geometrycollection",
)


@pytest.mark.parametrize("name", SHAPES)
def test_geometry_is_refused_with_a_replacement(new_mysql_database: NewDatabase, name: str) -> None:
    url = database_with(new_mysql_database, f"CREATE TABLE t (id integer PRIMARY KEY, v {name})")
    with pytest.raises(MappingError) as caught:
        checked(url, HEAD + "entities: {t: {items: {T: {key: ['T#{id}', M], keep: all}}}}")
    (fault,) = [str(fault) for fault in caught.value.faults if not fault.warning]
    own = "geomcollection" if "collection" in name and not is_mariadb(url) else name
    assert pins.said(fault, "form", name=own)
    assert pins.said(fault, "except")


def test_what_check_suggests_works(new_mysql_database: NewDatabase) -> None:
    script = """CREATE TABLE t (id integer PRIMARY KEY, v point, flags bit(3), n tinyint(1));
        INSERT INTO t VALUES (1, POINT(1.5, -2), b'101', 7)"""
    text = """
entities:
  t:
    columns:
      v_text: {sql: "ST_AsText(v)", type: text}
      x: {sql: "ST_X(v)", type: float}
      y: {sql: "ST_Y(v)", type: float}
      bits: {sql: "flags + 0", type: integer}
      many: {sql: "n + 0", type: integer}
    items:
      T:
        key: ["T#{id}", "{y,x|geohash:5}"]
        keep: {except: [v, n]}
        attributes: {v: v_text, bits: bits, n: many}
"""
    found = items(database_with(new_mysql_database, script), HEAD + text)
    assert plain(found, "v", "flags", "bits", "n", "SK") == [("POINT(1.5 -2)", "101", 5, 7, "kp9hd")]


def test_a_set_in_a_template_is_refused(new_mysql_database: NewDatabase) -> None:
    url = database_with(new_mysql_database, "CREATE TABLE t (id integer PRIMARY KEY, v set('a', 'b'))")
    with pins.refused(MappingError):
        checked(url, HEAD + "entities: {t: {items: {T: {key: ['T#{id}', '{v}']}}}}")


def test_a_set_and_a_json_array_become_sets(new_mysql_database: NewDatabase) -> None:
    script = "CREATE TABLE t (id INT PRIMARY KEY, v SET('b', 'a', 'c'), j JSON);"
    script += """INSERT INTO t VALUES (1, 'c,a', '["x", "y", "x"]'), (2, '', '[]'), (3, NULL, NULL)"""
    run_script(url := new_mysql_database(), script)
    text = HEAD + "entities: {t: {items: {T: {key: ['T#{id}', M], attributes: {v: v|set, j: j|set}}}}}"
    found = plain(items(url, text), "v", "j")
    assert found == [(["a", "c"], ["x", "y"]), (None, None), (None, None)]
    assert [encode(value) for value in found[0]] == [{"SS": ["a", "c"]}, {"SS": ["x", "y"]}]


def test_a_precision_over_38_is_a_warning(new_mysql_database: NewDatabase) -> None:
    url = database_with(new_mysql_database, "CREATE TABLE t (id integer PRIMARY KEY, v decimal(39, 2))")
    found = checked(url, HEAD + "entities: {t: {items: {T: {key: ['T#{id}', M], keep: [v]}}}}").warnings
    assert ["'v' may have 39 digits" in str(fault) for fault in found] == [True]


def test_a_partitioned_table_is_read_once(new_mysql_database: NewDatabase) -> None:
    url = database_with(
        new_mysql_database,
        """CREATE TABLE t (id integer, at date, PRIMARY KEY (id, at)) PARTITION BY RANGE COLUMNS (at)
            (PARTITION a VALUES LESS THAN ('2023-02-01'), PARTITION b VALUES LESS THAN (MAXVALUE));
        INSERT INTO t VALUES (1, '2023-01-01'), (2, '2023-02-01'), (3, '2024-01-01')""",
    )
    text = HEAD + "entities: {t: {items: {T: {key: ['T#{id}', '{at}'], keep: all}}}}"
    source = open_source(url, text)
    assert list(source.facts().tables) == ["t"]
    source.close()
    assert [item["id"] for item in items(url, text)] == [1, 2, 3]


def test_generated_and_invisible_columns_are_read_like_any_other(new_mysql_database: NewDatabase) -> None:
    script = """CREATE TABLE t (id integer PRIMARY KEY, price decimal(10, 2), hidden integer INVISIBLE DEFAULT 7,
            twice decimal(10, 2) AS (price * 2) VIRTUAL, thrice decimal(10, 2) AS (price * 3) STORED);
        INSERT INTO t (id, price) VALUES (1, 1.25)"""
    found = items(
        database_with(new_mysql_database, script),
        HEAD + "entities: {t: {items: {T: {key: ['T#{id}', M], keep: all}}}}",
    )
    assert plain(found, "price", "twice", "thrice", "hidden") == [(N("1.25"), N("2.50"), N("3.75"), 7)]
