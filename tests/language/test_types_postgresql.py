"""What a value of each of PostgreSQL's types becomes, on a real server."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import psycopg
import pytest

from migrator.mapping.items.wire import decode, encode
from tests.language.typed import Case, Made, assert_golden, made_of, script_of

N = Decimal
TOO_LONG = "1" * 39
MAKE_TYPES = """
CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE EXTENSION ltree; CREATE EXTENSION cube;
CREATE TYPE mood AS ENUM ('sad', 'happy #1');
CREATE DOMAIN price AS numeric(12, 2) CHECK (VALUE >= 0);
CREATE DOMAIN prices AS price[];
CREATE TYPE address AS (street text, no integer, since date, tags text[], price price);
CREATE TYPE person AS (name text, home address, moods mood[], photo bytea);
CREATE TYPE owned AS (owner oid, owners oid[]);
CREATE TYPE letters AS RANGE (subtype = text);
"""
CASES = [
    *(Case(name, "-32768", -32768) for name in ("SMALLINT", "INTEGER", "INT2", "INT4", "INT")),
    *(Case(name, "-9223372036854775808", -(2**63)) for name in ("BIGINT", "INT8")),
    *(Case(name, "7", 7) for name in ("SMALLSERIAL", "SERIAL", "BIGSERIAL")),
    Case("OID", "4294967295", 2**32 - 1),
    Case(
        "NUMERIC",
        "12345678901234567890.123456789",
        N("12345678901234567890.123456789"),
        text="12345678901234567890.123456789",
    ),
    Case("NUMERIC", "1e-130", N("1e-130")),
    Case("NUMERIC", "'-1e125'", N("-1e125")),
    Case("NUMERIC", "'1e126'", refused="DynamoDB's range", text="1" + "0" * 126),
    Case("NUMERIC", TOO_LONG, refused="more than 38 digits", text=TOO_LONG),
    Case("NUMERIC", "('0.' || repeat('9', 500))::numeric", refused="more than 38 digits"),
    Case("NUMERIC(1000, 450)", "(repeat('9', 500) || '.5')::numeric", refused="more than 38 digits"),
    Case("NUMERIC", "'NaN'", refused="NaN and infinity", text="NaN"),
    Case("NUMERIC", "'-Infinity'", refused="NaN and infinity", text="-Infinity"),
    Case("NUMERIC(50, 10)", "1.5", N("1.5000000000")),
    Case("NUMERIC(3, 5)", "0.00123", N("0.00123")),
    Case("NUMERIC(3, 5)", "0.00123", N("0.00123"), text="0.00123"),
    Case("NUMERIC(3, -2)", "12345", N("12300"), text="12300"),
    Case("DECIMAL(10, 2)", "-0.10", N("-0.10"), text="-0.10"),
    Case("DEC(10, 2)", "7", N("7.00")),
    Case("MONEY", "'-1234567.50'", N("-1234567.50"), text="-1234567.50"),
    Case("REAL", "0.1", N("0.1")),
    Case("FLOAT4", "16777217", N("16777216")),
    *(Case(name, "0.1", N("0.1")) for name in ("DOUBLE PRECISION", "FLOAT", "FLOAT8")),
    Case("FLOAT8", "0.1::float8 + 0.2", N("0.30000000000000004")),
    Case("FLOAT8", "5e-324", refused="DynamoDB's range"),
    Case("FLOAT8", "'NaN'", refused="NaN and infinity", text="NaN"),
    Case("FLOAT8", "'-inf'", refused="NaN and infinity", text="-Infinity"),
    Case("TEXT", "''", ""),
    Case("TEXT", "E' Ünï\\n#'", " Ünï\n#", text=" Ünï\n#"),
    *(Case(f"{name}(9)", "'ab  '", "ab  ") for name in ("CHARACTER VARYING", "VARCHAR")),
    Case("NAME", "'pg'", "pg"),
    Case('"char"', "'x'", "x"),
    Case("CITEXT", "'MiXed'", "MiXed"),
    Case("LTREE", "'a.b'", "a.b"),
    *(Case(f"{name}(4)", "'ab'", "ab  ") for name in ("CHARACTER", "CHAR", "BPCHAR")),
    *(Case(name, "true", True, text="true") for name in ("BOOLEAN", "BOOL")),
    Case("DATE", "'1969-07-20'", "1969-07-20"),
    Case("DATE", "'0001-01-01'", "0001-01-01"),
    Case("DATE", "'0044-03-15 BC'", refused="years 1 to 9999", text="0044-03-15 BC"),
    Case("DATE", "'10000-01-01'", refused="years 1 to 9999", text="10000-01-01"),
    Case("DATE", "'infinity'", refused="years 1 to 9999", text="infinity"),
    Case("TIME", "'04:05:06.7'", "04:05:06.700000"),
    Case("TIME WITHOUT TIME ZONE", "'04:05'", "04:05:00"),
    Case("TIME", "'24:00'", refused="not a time", text="24:00:00"),
    Case("TIME WITH TIME ZONE", "'04:05:06.7+05:30'", "04:05:06.700000+05:30"),
    Case("TIMETZ", "'04:05:06-08'", "04:05:06-08:00"),
    Case("TIMESTAMP", "'1899-12-31 23:59:59.999999'", "1899-12-31T23:59:59.999999"),
    Case("TIMESTAMP WITHOUT TIME ZONE", "'2024-03-31 02:30'", "2024-03-31T02:30:00.000000"),
    Case("TIMESTAMP", "'-infinity'", refused="years 1 to 9999", text="-infinity"),
    Case("TIMESTAMP", "'0044-03-15 12:00 BC'", refused="years 1 to 9999", text="0044-03-15 12:00:00 BC"),
    Case("TIMESTAMP", "'294276-12-31 23:59:59.5'", refused="years 1 to 9999", text="294276-12-31 23:59:59.5"),
    Case("TIMESTAMP WITH TIME ZONE", "'2024-10-27 02:30+02'", "2024-10-27T00:30:00.000000Z"),
    Case("TIMESTAMPTZ", "'2024-10-27 02:30+01'", "2024-10-27T01:30:00.000000Z"),
    Case("TIMESTAMPTZ(0)", "'2024-10-27 02:30 Europe/Berlin'", "2024-10-27T01:30:00.000000Z"),
    Case("TIMESTAMPTZ", "'2024-03-31 02:30 Europe/Berlin'", "2024-03-31T01:30:00.000000Z"),
    Case("TIMESTAMPTZ", "'1891-01-01 00:00 Europe/Berlin'", "1890-12-31T23:06:32.000000Z"),
    Case("TIMESTAMPTZ", "'infinity'", refused="years 1 to 9999", text="infinity"),
    Case("INTERVAL", "'1 year 2 mons 3 days -04:05:06.7'", "P1Y2M3DT-4H-5M-6.7S"),
    Case("INTERVAL", "'-1 day'", "P-1D"),
    Case("INTERVAL", "'0'", "PT0S"),
    Case("INTERVAL DAY TO SECOND(3)", "'100:00:00.1234'", "PT100H0.123S"),
    Case("UUID", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    Case("BYTEA", r"'\x00ff'", b"\x00\xff"),
    Case("BYTEA", "''", b""),
    Case("JSON", "'null'", None),
    Case("JSONB", "'null'", None),
    Case("JSON", """'{"a": [1.10, null], "a": "x"}'""", {"a": "x"}),
    Case(
        "JSONB",
        """'{"a": [1.10, null, 12345678901234567890]}'""",
        {"a": [N("1.10"), None, 12345678901234567890]},
    ),
    Case("JSONB", f"'{{\"n\": {TOO_LONG}}}'", refused="a value inside it: a number of more than 38 digits"),
    Case("HSTORE", '\'a=>1, b=>NULL, "c d"=>""\'', {"a": "1", "b": None, "c d": ""}),
    Case("BIT(1)", "B'1'", "1"),
    Case("BIT(5)", "B'00101'", "00101"),
    *(Case(f"{name}(5)", "B'010'", "010") for name in ("BIT VARYING", "VARBIT")),
    Case("INET", "'10.1.2.3/8'", "10.1.2.3/8"),
    Case("INET", "'::1'", "::1"),
    Case("CIDR", "'10/8'", "10.0.0.0/8"),
    Case("MACADDR", "'08-00-2B-01-02-03'", "08:00:2b:01:02:03"),
    Case("MACADDR8", "'08-00-2B-01-02-03-04-05'", "08:00:2b:01:02:03:04:05"),
    Case("INT4RANGE", "'[1,5]'", "[1,6)"),
    Case("INT8RANGE", "'(,5]'", "(,6)"),
    Case("NUMRANGE", "'empty'", "empty"),
    Case("DATERANGE", "'[0044-01-01 BC,infinity]'", '["0044-01-01 BC",infinity]'),
    Case("TSRANGE", "'[2024-01-01,)'", '["2024-01-01 00:00:00",)'),
    Case("TSTZRANGE", "'[2024-01-01 00:00+02,)'", '["2023-12-31 22:00:00+00",)'),
    Case("letters", "'[a,b]'", "[a,b]"),
    Case("INT4MULTIRANGE", "'{[1,2],[2,5)}'", "{[1,5)}"),
    *(Case(f"{name}MULTIRANGE", "'{}'", "{}") for name in ("INT8", "NUM", "DATE", "TS", "TSTZ")),
    Case("TSVECTOR", "'b a'", "'a' 'b'"),
    Case("TSQUERY", "'a & b'", "'a' & 'b'"),
    Case("XML", "'<a b=\"1\"/>'", '<a b="1"/>'),
    Case("JSONPATH", "'$.a'", '$."a"'),
    Case("POINT", "'(1.5,-2)'", "(1.5,-2)"),
    Case("LINE", "'{1,2,3}'", "{1,2,3}"),
    Case("LSEG", "'((0,0),(1,1))'", "[(0,0),(1,1)]"),
    Case("BOX", "'((0,0),(1,1))'", "(1,1),(0,0)"),
    Case("PATH", "'[(0,0),(1,1)]'", "[(0,0),(1,1)]"),
    Case("POLYGON", "'((0,0),(1,1),(1,0))'", "((0,0),(1,1),(1,0))"),
    Case("CIRCLE", "'<(0,0),2>'", "<(0,0),2>"),
    *(Case(name, "'5'", "5") for name in ("CID", "XID", "XID8")),
    Case("TID", "'(0,1)'", "(0,1)"),
    Case("PG_LSN", "'16/B374D848'", "16/B374D848"),
    *(Case(name, "'10:20:10,14'", "10:20:10,14") for name in ("PG_SNAPSHOT", "TXID_SNAPSHOT")),
    Case("REFCURSOR", "'c'", "c"),
    Case("ACLITEM", "'=r/pg_database_owner'", "=r/pg_database_owner"),
    Case("REGCLASS", "'pg_type'", "pg_type"),
    Case("REGCOLLATION", "'\"C\"'", '"C"'),
    *(Case(name, "'simple'", "simple") for name in ("REGCONFIG", "REGDICTIONARY")),
    Case("REGNAMESPACE", "'pg_catalog'", "pg_catalog"),
    Case("REGOPER", "'||/'", "||/"),
    Case("REGOPERATOR", "'*(integer,integer)'", "*(integer,integer)"),
    Case("REGPROC", "'now'", "now"),
    Case("REGPROCEDURE", "'now()'", "now()"),
    Case("REGROLE", "'pg_monitor'", "pg_monitor"),
    Case("REGTYPE", "'integer'", "integer"),
    # ── what users make types of ──
    Case("mood", "'happy #1'", "happy #1"),
    Case("price", "12.5", N("12.50")),
    Case("price", "NULL", None),
    Case("integer[]", "'{}'", []),
    Case("integer[]", "'[0:1]={1,NULL}'", [1, None]),
    Case("integer[][]", "'{{1,2},{3,NULL}}'", [[1, 2], [3, None]]),
    Case("numeric(10,2)[]", "'{1.5,12345678.90}'", [N("1.50"), N("12345678.90")]),
    Case("numeric[]", "'{1,NaN}'", refused="a value inside it: the value is NaN; NaN and infinity"),
    Case("oid[]", "'{5,4294967295,NULL}'", [5, 2**32 - 1, None]),
    Case("money[]", "'{1.50,-2}'", [N("1.50"), N("-2.00")]),
    Case("real[]", "'{0.1}'", [N("0.1")]),
    Case("text[]", """'{"a,b","NULL",NULL,"\\""}'""", ["a,b", "NULL", None, '"']),
    Case("boolean[]", "'{t,f}'", [True, False]),
    Case("timestamptz[]", "'{2024-10-27 02:30+02}'", ["2024-10-27T00:30:00.000000Z"]),
    Case("timestamp[]", "'{2024-10-27 02:30}'", ["2024-10-27T02:30:00.000000"]),
    Case("date[]", "'{infinity}'", refused="a value inside it"),
    Case("bytea[]", r"""'{"\\x00ff"}'""", [b"\x00\xff"]),
    Case("uuid[]", "'{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11}'", ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    Case("jsonb[]", """ARRAY['{"a": [1, "x"]}', '"t"', 'null']::jsonb[]""", [{"a": [1, "x"]}, "t", None]),
    Case("interval[]", "'{1 mon}'", ["P1M"]),
    Case("mood[]", "'{happy #1,sad}'", ["happy #1", "sad"]),
    Case("hstore[]", "ARRAY['a=>1'::hstore]", [{"a": "1"}]),
    Case("prices", "'{1,2.5}'", [N("1.00"), N("2.50")]),
    Case("int4range[]", "'{\"[1,2]\"}'", ["[1,3)"]),
    Case(
        "address",
        "ROW('Main St', 5, '1969-07-20', '{a,NULL}', 1.5)",
        {"street": "Main St", "no": 5, "since": "1969-07-20", "tags": ["a", None], "price": N("1.50")},
    ),
    Case("owned", "ROW(5, '{4294967295}')", {"owner": 5, "owners": [2**32 - 1]}),
    Case("address", "ROW('Main St', NULL, NULL, NULL, NULL)", {"street": "Main St"}),
    Case(
        "address[]", "ARRAY[ROW('A', 1, NULL, '{}', NULL)]::address[]", [{"street": "A", "no": 1, "tags": []}]
    ),
    Case(
        "person",
        r"ROW('B', ROW('A', 1, NULL, NULL, NULL), '{sad}', '\x00')",
        {"name": "B", "home": {"street": "A", "no": 1}, "moods": ["sad"], "photo": b"\x00"},
    ),
]


@pytest.fixture(scope="module")
def made(new_postgres_database: Callable[[], str]) -> dict[str, Made]:
    url = new_postgres_database()
    with psycopg.connect(url) as connection:
        # What a server or a role has set must not matter.
        connection.execute("SET timezone = 'Asia/Tokyo'; SET datestyle = 'ISO, YMD'")
        connection.execute(MAKE_TYPES + script_of(CASES))
        (name,) = connection.execute("SELECT current_database()").fetchone() or ("",)
        for setting in (
            "timezone TO 'Europe/Berlin'",
            "datestyle TO 'SQL, DMY'",
            "intervalstyle TO 'postgres_verbose'",
            "extra_float_digits TO -5",
            "bytea_output TO 'escape'",
        ):
            connection.execute(f'ALTER DATABASE "{name}" SET {setting}')
    return dict(zip(map(str, CASES), made_of(url, CASES), strict=True))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_value_of_a_type(made: dict[str, Made], case: Case) -> None:
    assert_golden(case, made[str(case)])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_value_survives_the_wire(case: Case) -> None:
    assert decode(encode(case.expected)) == case.expected
