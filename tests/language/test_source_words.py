"""columns, where, views, composite keys, quoted and spaced names, on every engine."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from migrator.runtime.errors import MappingError, SourceError
from migrator.settings.transforms import checked_on
from tests import pins
from tests.language.conftest import Database, database_on
from tests.language.context import HEAD, items, open_source, plain
from tests.support_mapping import parse_mapping

SCRIPT = """
CREATE TABLE "Order Details" ("Order ID" INTEGER NOT NULL, "Line.No" INTEGER NOT NULL, "Unit Price" NUMERIC(10, 2),
  "Paid" NUMERIC(10, 2), "a|b" VARCHAR(20), "Όνομα" VARCHAR(20), "deleted at" TIMESTAMP NULL, "Due" DATE,
  PRIMARY KEY ("Order ID", "Line.No"));
CREATE TABLE "Note" ("Order ID" INTEGER NOT NULL, "Line.No" INTEGER NOT NULL, "no" INTEGER NOT NULL, "text" VARCHAR(20),
  PRIMARY KEY ("Order ID", "Line.No", "no"),
  FOREIGN KEY ("Order ID", "Line.No") REFERENCES "Order Details" ("Order ID", "Line.No"));
INSERT INTO "Order Details" VALUES (1, 1, 9.50, 2.25, 'x', 'Ωmega 🎵', NULL, '2026-01-05'), (1, 2, 3, NULL, 'y', 'β', NULL, NULL),
  (2, 1, 1, 1, 'z', 'γ', '2026-01-02 03:04:05', NULL);
INSERT INTO "Note" VALUES (1, 1, 2, 'second'), (1, 1, 1, 'first'), (2, 1, 1, 'gone');
CREATE VIEW "Open Details" AS SELECT "Order ID" AS id, "Line.No" AS line, "Unit Price" AS price FROM "Order Details"
  WHERE "deleted at" IS NULL;
"""


def test_names_with_spaces_dots_bars_and_emoji(database: Database) -> None:
    text = """
entities:
  detail:
    table: Order Details
    where: {deleted at: null}
    collect: {notes: {of: Note, by: [Order ID, Line.No], order_by: [no]}, count: {count: all, of: Note, by: [Order ID, Line.No]}}
    items:
      Detail:
        key: ["ORDER#{Order ID}", "LINE#{Line.No:03}"]
        GSI1: ['BAR#{"a|b"|upper}', "{Όνομα}"]
        keep: [Unit Price, Όνομα]
        attributes: {no: Line.No, bar: '"a|b"', notes: {each: notes, attributes: {t: text}}, count: count}
"""
    found = items(database(SCRIPT), HEAD + text)
    assert plain(found, "PK", "SK", "GSI1PK", "GSI1SK", "Unit Price", "no", "bar", "count") == [
        ("ORDER#1", "LINE#001", "BAR#X", "Ωmega 🎵", Decimal("9.50"), 1, "x", 2),
        ("ORDER#1", "LINE#002", "BAR#Y", "β", Decimal(3), 2, "y", 0),
    ]
    assert [item["notes"] for item in found] == [[{"t": "first"}, {"t": "second"}], []]


def test_a_view_names_its_key(database: Database) -> None:
    text = """
entities:
  open:
    table: Open Details
    key: [id, line]
    items:
      Open: {key: ["ORDER#{id}", "LINE#{line:03}"], keep: all}
"""
    found = items(database(SCRIPT), HEAD + text)
    assert plain(found, "_src", "price") == [("open:[1,1]", Decimal("9.50")), ("open:[1,2]", Decimal(3))]


def test_computed_columns_have_their_declared_type(database: Database) -> None:
    text = """
entities:
  detail:
    table: Order Details
    where: {state: [open, none]}
    columns:
      owed: {sql: '"Unit Price" - "Paid"', type: number(2)}
      state: "CASE WHEN \\"Paid\\" IS NULL THEN 'none' WHEN \\"Paid\\" < \\"Unit Price\\" THEN 'open' ELSE 'paid 100%' END"
      next: {sql: '"Line.No" + 1', type: integer}
      day: {sql: '"Due"', type: date}
    items:
      Detail:
        key: ["ORDER#{Order ID}", "LINE#{Line.No:03}"]
        GSI1: ["STATE#{state}", "{owed:08.2f}"]
        GSI2: ["DAY#{day|month}", "{next:04}"]
        attributes: {owed: owed, next: next}
"""
    url = database(SCRIPT)
    found = items(url, HEAD + text)
    assert plain(found, "SK", "GSI1PK", "GSI1SK", "owed", "next", "GSI2PK") == [
        ("LINE#001", "STATE#open", "00007.25", Decimal("7.25"), 2, "DAY#2026-01"),
        ("LINE#002", None, None, None, 3, None),
    ]


BAD_COLUMNS = {
    "no such column": '"Paid" + unit_price',
    "an aggregate": 'sum("Paid")',
    "a second statement": "1; DROP TABLE note",
    "an end of the list": '"Paid") FROM note; --',
    "a subquery": "(SELECT 1)",
    "no SQL": '"Paid" +',
}


@pytest.mark.parametrize("name", BAD_COLUMNS)
def test_column_that_the_source_refuses_is_a_mapping_fault(database: Database, name: str) -> None:
    text = (
        HEAD
        + f"""
entities:
  detail:
    table: Order Details
    columns: {{x: '{BAD_COLUMNS[name]}'}}
    items:
      Detail: {{key: ["ORDER#{{Order ID}}", "LINE#{{Line.No:03}}"], attributes: {{x: x}}}}
"""
    )
    source = open_source(database(SCRIPT), text)
    with pins.refused(MappingError) as caught:
        checked_on(source, parse_mapping(text, "m.yaml"))
    assert caught.value.faults[-1].where == "entities.detail.columns.x"
    assert caught.value.faults[-1].line == text[: text.index("columns:")].count("\n") + 1
    source.close()


def test_a_view_that_fails_stops_with_the_entity_and_a_reason(database: Database) -> None:
    failing = """
    CREATE TABLE base (id INTEGER PRIMARY KEY, amount VARCHAR(20));
    INSERT INTO base VALUES (1, 'abc');
    """
    broken = {
        "sqlite": "CREATE VIEW bad AS SELECT id, load_extension('x') AS amount FROM base;",
        "postgresql": "CREATE VIEW bad AS SELECT id, CAST(amount AS INTEGER) AS amount FROM base;",
        "mysql": "CREATE VIEW bad AS SELECT id, amount FROM base; ALTER TABLE base DROP COLUMN amount;",
    }
    dialect = database(failing).partition(":")[0].partition("+")[0]
    text = HEAD + "entities: {bad: {key: [id], items: {Bad: {key: ['BAD#{id}', M], keep: [amount]}}}}"
    url = database(failing + broken[dialect])
    with pytest.raises((SourceError, MappingError), match="bad"):
        items(url, text)


def test_json_of_every_form(database: Database) -> None:
    documents = ['{"b": [1, 2.50, null], "a": {"x": true}}', '"text"', "17", "null", "[]"]
    values = ", ".join(f"({number}, '{document}')" for number, document in enumerate(documents))
    url = database(f"CREATE TABLE doc (id INTEGER PRIMARY KEY, body JSON); INSERT INTO doc VALUES {values};")
    text = (
        "entities: {doc: {items: {Doc: {key: ['DOC#{id}', M], keep: [body], attributes: {text: body|json}}}}}"
    )
    found = items(url, HEAD + text)
    assert plain(found, "body", "text") == [
        ({"b": [1, Decimal("2.50"), None], "a": {"x": True}}, '{"a":{"x":true},"b":[1,2.5,null]}'),
        ("text", '"text"'),
        (17, "17"),
        (None, "null"),
        ([], "[]"),
    ]


def test_names_in_emoji(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    script = 'CREATE TABLE "🎵" ("🔑" INTEGER PRIMARY KEY, "👤" INTEGER, "όνομα" VARCHAR(20)); INSERT INTO "🎵" VALUES (1, 1, \'α🎵\');'
    text = """
entities:
  🎶:
    table: 🎵
    join: {πάνω: {table: 🎵, on: {👤: 🔑}}}
    items:
      Τραγούδι: {key: ["🎶#{🔑}", "Ω#{όνομα|upper}"], keep: [👤], attributes: {"🎤": πάνω.όνομα}}
"""
    for engine in ("sqlite", "postgresql"):  # MariaDB takes no character beyond U+FFFF in a name
        (item,) = items(database_on(engine, request, tmp_path)(script), HEAD + text)
        assert (item["PK"], item["SK"], item["_src"]) == ("🎶#1", "Ω#Α🎵", "🎶:[1]")
        assert (item["type"], item["👤"], item["🎤"]) == ("Τραγούδι", 1, "α🎵")
