"""PostgreSQL's types in keys, templates, partitions and generated columns, and what check says of those that it refuses."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise

import psycopg
import pytest

from migrator.mapping.items.wire import encode
from migrator.runtime.errors import MappingError
from migrator.source.engines.postgresql.facts import KINDS
from tests import pins
from tests.language.context import HEAD, checked, items, open_source, plain
from tests.language.test_types_postgresql import CASES

NewDatabase = Callable[[], str]

# What the server keeps for itself, and no column of a user's table has.
INTERNAL = {
    "gtsvector",
    "int2vector",
    "oidvector",
    "pg_brin_bloom_summary",
    "pg_brin_minmax_multi_summary",
    "pg_dependencies",
    "pg_mcv_list",
    "pg_ndistinct",
    "pg_node_tree",
}


def database_with(make: NewDatabase, script: str) -> str:
    url = make()
    with psycopg.connect(url) as connection:
        connection.execute(script)
    return url


def faults_of(url: str, text: str) -> list[str]:
    """All faults, warnings among them, as text."""
    try:
        return [str(fault) for fault in checked(url, text).warnings]
    except MappingError as error:
        return [str(fault) for fault in error.faults]


def test_every_type_of_the_server_has_a_rule(postgres_url: str) -> None:
    query = """SELECT format_type(oid, NULL) FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace
        AND typtype IN ('b', 'r', 'm') AND NOT (typelem <> 0 AND typlen = -1)"""
    with psycopg.connect(postgres_url) as connection:
        names = {name for (name,) in connection.execute(query)}
    assert len(names) > 60
    assert not {name for name in names - INTERNAL if KINDS.kind_of(name).name == "unknown"}


def test_every_type_with_a_rule_has_a_golden_case() -> None:
    tested = {case.declared.partition("(")[0].strip().upper() for case in CASES}
    named = {name for name, kind in KINDS.named.items() if kind.name != "unknown"}
    assert named - tested - {"INT4", "DOUBLE"} == set()


REFUSED = {
    "cube": """write columns: {v_text: {sql: "CAST(v AS text)", type: text}} and use v_text, with keep: {except: [v]}""",
    "cube[]": "CAST(v AS text)",
    "place": "CAST(to_jsonb(v) AS text)",
    "geometry": "ST_AsText(v)",
    "bill": "CAST(to_jsonb(v) AS text)",
}
MAKE_REFUSED = """
CREATE EXTENSION cube; CREATE TYPE place AS (name text, at cube); CREATE TYPE bill AS (total money);
-- PostGIS is not everywhere; only the type's name counts here.
CREATE TYPE geometry;
CREATE FUNCTION geometry_in(cstring) RETURNS geometry LANGUAGE internal IMMUTABLE STRICT AS 'textin';
CREATE FUNCTION geometry_out(geometry) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'textout';
CREATE TYPE geometry (INPUT = geometry_in, OUTPUT = geometry_out, LIKE = text);
"""


def test_refused_type_is_reported_with_a_replacement(new_postgres_database: NewDatabase) -> None:
    tables = "".join(
        f"CREATE TABLE t{number} (id integer PRIMARY KEY, v {name});" for number, name in enumerate(REFUSED)
    )
    url = database_with(new_postgres_database, MAKE_REFUSED + tables)
    for number, (name, message) in enumerate(REFUSED.items()):
        text = f"entities: {{t{number}: {{items: {{T: {{key: ['T#{{id}}', M], keep: all}}}}}}}}"
        (fault,) = faults_of(url, HEAD + text)
        assert pins.said(fault, name=name)
        assert message in fault
        used = text.replace("keep: all", "attributes: {v: v}")
        assert any(message.partition(", with")[0] in one for one in faults_of(url, HEAD + used))


def test_what_check_suggests_works(new_postgres_database: NewDatabase) -> None:
    script = "CREATE TABLE t (id integer PRIMARY KEY, v cube, p place); INSERT INTO t VALUES (1, '(1,2)', ROW('x', '(3)'));"
    url = database_with(new_postgres_database, MAKE_REFUSED + script)
    text = """
entities:
  t:
    columns: {v_text: {sql: "CAST(v AS text)", type: text}, p_text: {sql: "CAST(to_jsonb(p) AS text)", type: text}}
    items: {T: {key: ["T#{id}", M], keep: {except: [v, p]}, attributes: {v: v_text, p: p_text}}}
"""
    assert plain(items(url, HEAD + text), "v", "p") == [("(1, 2)", '{"at": "(3)", "name": "x"}')]


TABLE = """
CREATE TYPE pair AS (a integer, b integer);
CREATE TABLE t (id integer PRIMARY KEY, tags text[], home pair, wide numeric(50, 2), deep numeric(38, 2),
    listed integer[] NOT NULL, UNIQUE (listed));
INSERT INTO t VALUES (1, '{a,b}', ROW(1, 2), 1.5, 2.5, '{1}');
"""
WRONG = {
    "GSI1: ['X#{tags}', M]": "'tags' is a list, which cannot be written as text; write tags|json",
    "attributes: {x: 'a {home}'}": "'home' is a map, which cannot be written as text; write home|json",
    "attributes: {x: tags|lower}": "'tags' is a list; of the filters only json and set take it, not 'lower'",
    "attributes: {x: tags|text}": "of the filters only json and set take it, not 'text'",
    "attributes: {x: tags|iso}": "of the filters only json and set take it, not 'iso'",
    "attributes: {x: deep|epoch}": "the filter 'epoch' takes date or timestamp; this is number",
    "when: {tags: [a]}": "'tags' is a list; a condition or a ttl takes one value",
    "ttl: tags": "'tags' is a list; a condition or a ttl takes one value",
    "keep: [wide]": "warning: entities.t.items.T.keep: 'wide' may have 50 digits",
    "attributes: {x: wide}": "warning: entities.t.items.T.attributes.x: 'wide' may have 50 digits",
}


@pytest.fixture(scope="module")
def table(new_postgres_database: NewDatabase) -> str:
    return database_with(new_postgres_database, TABLE)


@pytest.mark.parametrize("rest", WRONG)
def test_a_type_in_a_wrong_place_is_reported(table: str, rest: str) -> None:
    text = f"entities: {{t: {{items: {{T: {{key: ['T#{{id}}', M], {rest}}}}}}}}}"
    assert any(WRONG[rest] in fault for fault in faults_of(table, HEAD + text))


def test_lists_and_wide_numbers_have_their_places(table: str) -> None:
    rest = "keep: [tags, home, deep], attributes: {x: tags|json, y: wide|text, z: 'h {home|json}'}"
    text = f"{HEAD}entities: {{t: {{items: {{T: {{key: ['T#{{id}}', M], {rest}}}}}}}}}"
    assert faults_of(table, text) == []
    assert plain(items(table, text), "tags", "home", "deep", "x", "y", "z") == [
        (["a", "b"], {"a": 1, "b": 2}, Decimal("2.50"), '["a","b"]', "1.50", pins.text())
    ]


ARRAYS = {
    "text[]": ("ARRAY['b', 'a', 'b']", {"SS": ["a", "b"]}),
    "integer[]": ("ARRAY[10, 9, 10]", {"NS": ["9", "10"]}),
    "numeric(8, 2)[]": ("ARRAY[1.50, 1.5]", {"NS": ["1.5"]}),
    "bytea[]": ("ARRAY['\\xff'::bytea, '\\x00']", {"BS": [b"\0", b"\xff"]}),
    "date[]": ("ARRAY[DATE '2024-02-29']", {"SS": ["2024-02-29"]}),
    "uuid[]": ("ARRAY['A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'::uuid]", {"SS": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]}),
    "jsonb": ("""'["x", "y"]'""", {"SS": ["x", "y"]}),
}  # fmt: skip


def test_an_array_becomes_a_set_of_its_members(new_postgres_database: NewDatabase) -> None:
    columns = ", ".join(f"c{number} {name}" for number, name in enumerate(ARRAYS))
    values = ", ".join(value for value, _ in ARRAYS.values())
    script = f"CREATE TABLE t (id integer PRIMARY KEY, {columns}, flags boolean[], deep integer[]);"
    script += f"INSERT INTO t VALUES (1, {values}, '{{t}}', '{{1}}'); INSERT INTO t (id) VALUES (2);"
    url = database_with(new_postgres_database, script)
    names = [f"c{number}" for number in range(len(ARRAYS))]
    sets = ", ".join(f"{name}: {name}|set" for name in names)
    text = f"entities: {{t: {{items: {{T: {{key: ['T#{{id}}', M], attributes: {{{sets}}}}}}}}}}}"
    assert faults_of(url, HEAD + text) == []
    full, empty = plain(items(url, HEAD + text), *names)
    assert [encode(value) for value in full] == [wired for _, wired in ARRAYS.values()]
    assert set(empty) == {None}
    (fault,) = faults_of(url, HEAD + text.replace("c0|set", "flags|set"))
    assert pins.said(fault)


def test_a_list_cannot_name_a_row(table: str) -> None:
    text = "entities: {t: {key: [listed], items: {T: {key: ['T#{id}', M]}}}}"
    assert pins.said(faults_of(table, HEAD + text))


KEYS = {
    "money": ["-1.50", "2", "10000"],
    "interval": ["-1 day", "1 hour", "1 mon", "1 year 2 mons"],
    "int4range": ["[1,3)", "[1,5)", "[2,3)"],
    "bit(3)": ["001", "010", "111"],
    "timetz": ["04:00+02", "04:00+00", "05:00-08"],
    "inet": ["10.0.0.0/8", "10.0.0.1", "::1"],
    "date": ["-infinity", "0044-03-15 BC", "2024-01-01", "infinity"],
    "numeric": ["-Infinity", "-1", "2.50", "NaN"],
    "citext": ["a", "B", "c"],
    "mood": ["sad", "happy"],
}


@pytest.mark.parametrize("name", KEYS)
def test_pages_by_a_key_of_any_type_hold_every_row_once(
    new_postgres_database: NewDatabase, name: str
) -> None:
    values = ", ".join(f"('{value}', {number})" for number, value in enumerate(KEYS[name]))
    url = database_with(
        new_postgres_database,
        "CREATE EXTENSION citext; CREATE TYPE mood AS ENUM ('sad', 'happy');"
        f"CREATE TABLE t (v {name} PRIMARY KEY, n integer); INSERT INTO t VALUES {values};",
    )
    text = HEAD + "entities: {t: {items: {T: {key: ['T#{n}', M], keep: [n]}}}}"
    (entity,) = checked(url, text).entities
    source = open_source(url, text)
    bounds = [None, *source.page_bounds(entity.plan, 1), None]
    rows = [row for after, upto in pairwise(bounds) for row in source.read_page(entity.plan, after, upto)]
    keys = [entity.source_key(row) for row in rows]
    assert len(set(keys)) == len(KEYS[name])
    assert sorted(map(repr, source.read_rows(entity.plan, keys))) == sorted(map(repr, rows))
    source.close()


def test_a_partitioned_table_is_read_once_at_the_parent(new_postgres_database: NewDatabase) -> None:
    url = database_with(
        new_postgres_database,
        """CREATE TABLE t (id integer, at date, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
        CREATE TABLE t_23 PARTITION OF t FOR VALUES FROM ('2023-01-01') TO ('2024-01-01') PARTITION BY HASH (id);
        CREATE TABLE t_23_0 PARTITION OF t_23 FOR VALUES WITH (MODULUS 2, REMAINDER 0);
        CREATE TABLE t_23_1 PARTITION OF t_23 FOR VALUES WITH (MODULUS 2, REMAINDER 1);
        CREATE TABLE t_rest PARTITION OF t DEFAULT;
        INSERT INTO t SELECT n, DATE '2023-01-01' + n * 100 FROM generate_series(0, 9) n;""",
    )
    text = HEAD + "entities: {t: {items: {T: {key: ['T#{id}', '{at}'], keep: all}}}}"
    source = open_source(url, text)
    assert list(source.facts().tables) == ["t"]
    source.close()
    assert [item["id"] for item in items(url, text)] == list(range(10))


def test_a_generated_column_is_read_like_any_other(new_postgres_database: NewDatabase) -> None:
    url = database_with(
        new_postgres_database,
        """CREATE TABLE t (id integer PRIMARY KEY, n integer GENERATED ALWAYS AS IDENTITY, price numeric(10, 2),
        twice numeric(10, 2) GENERATED ALWAYS AS (price * 2) STORED); INSERT INTO t (id, price) VALUES (1, 1.25);""",
    )
    text = HEAD + "entities: {t: {items: {T: {key: ['T#{id}', M], keep: all}}}}"
    assert plain(items(url, text), "n", "price", "twice") == [(1, Decimal("1.25"), Decimal("2.50"))]
