"""Old tables of DynamoDB's in a mapping: the facts that they declare, and words that only SQL can do."""

from __future__ import annotations

import pytest

from migrator.mapping.check.check import Checked, check_form, check_mapping
from migrator.mapping.language.documents import facts_of
from migrator.mapping.language.parse import examine_mapping
from migrator.mapping.model.facts import Kind
from migrator.mapping.model.mapping import DocumentQuestion
from migrator.runtime.errors import MappingError
from tests import pins

TABLES = """
mapping: 1
source:
  timezone: UTC
  tables:
    Users: {key: [id], columns: {id: text, name: text, address.city: text, tags: set(text), boss: text, age: integer}}
    Orders: {key: [order_id], columns: {order_id: text, user_id: text, total: number(2), at: timestamp}}
    Lines: {key: [order_id, line], columns: {order_id: text, line: integer, sku: text}}
table: {name: Shop, key: [PK, SK], type: type}
entities:
"""


def checked(entities: str, tables: str = TABLES) -> Checked:
    parsed = examine_mapping(tables + entities, "shop.yaml")
    return check_mapping(parsed, facts_of(parsed.mapping))


def faults(entities: str, tables: str = TABLES) -> list[str]:
    with pytest.raises(MappingError) as raised:
        checked(entities, tables)
    return [f"{fault.where}: {fault.what}" for fault in raised.value.faults if not fault.warning]


ORDER = """
  order:
    table: Orders
    join: {user: {table: Users, on: {user_id: id}}}
    collect: {lines: {of: Lines, by: order_id}}
    items:
      Order:
        key: ["USER#{user_id}", "ORDER#{at|iso:s}#{order_id}"]
        attributes: {city: user.address.city, lines: {each: lines, attributes: {sku: sku}}}
"""


def test_declared_tables_are_planned_as_those_of_a_database_are() -> None:
    (plan,) = checked(ORDER).plans
    assert [slot.path for slot in plan.slots] == ["order_id", "user_id", "at", "user.address.city"]
    assert [join.on for join in plan.joins] == [(("user_id", "id"),)]
    assert [collection.link for collection in plan.collections] == [(("order_id", "order_id"),)]
    assert plan.collections[0].order_by == ("order_id", "line")


def test_a_declared_type_is_the_kind_of_its_column() -> None:
    facts = facts_of(examine_mapping(TABLES + ORDER, "shop.yaml").mapping)
    assert facts.dialect == "dynamodb"
    users = {column.name: column for column in facts.tables["Users"].columns}
    assert users["tags"].kind == Kind("list", element=Kind("text"), distinct=True)
    assert users["address.city"].kind == Kind("text")
    assert (users["id"].nullable, users["name"].nullable) == (False, True)
    assert facts.tables["Lines"].primary_key == ("order_id", "line")


@pytest.mark.parametrize(
    ("words", "where", "mend"),
    [
        ('columns: {twice: "age * 2"}', "columns.twice", "name the attribute itself"),
        ("changes: {Orders: user_id}", "changes", "name its tables by table:"),
        ("key: [name]", "key", "leave key: out"),
        ("climb: {line: {boss: name}}", "climb.line", ""),
        ("join: {user: {table: Users, on: {age: id}}}", "join.user", "a link needs one type"),
        ("collect: {lines: {of: Lines, by: line}}", "collect.lines", "a link needs one type"),
    ],
)
def test_sql_only_feature_of_old_table_is_refused_with_its_word(words: str, where: str, mend: str) -> None:
    found = faults(
        f'  user:\n    table: Users\n    {words}\n    items: {{User: {{key: ["USER#{{id}}", ME]}}}}\n'
    )
    assert any(fault.startswith(f"entities.user.{where}") and mend in fault for fault in found), found


def test_a_climb_goes_up_by_the_key() -> None:
    (plan,) = checked(
        """
  user:
    table: Users
    climb: {line: boss}
    items: {User: {key: ["USER#{id}", "{line.id|path}"]}}
"""
    ).plans
    assert plan.collections[0].link == (("boss", "id"),)


def test_sql_of_a_pattern_is_refused() -> None:
    pattern = """
access_patterns:
  one:
    params: {id: text}
    get: {key: ["USER#{id}", ME]}
    returns: [type]
    sql: SELECT 1
"""
    found = faults('  user: {table: Users, items: {User: {key: ["USER#{id}", ME]}}}' + pattern)
    assert [fault for fault in found if fault.startswith("access_patterns.one.sql") and "sql: needs" in fault]


def test_faults_of_the_declaration_come_all_at_once() -> None:
    tables = """
mapping: 1
source:
  schemas: [shop]
  tables:
    Users: {key: [id, at], columns: {id: json, name: text, name.first: text, age: years}}
table: {name: Shop, key: [PK, SK], type: type}
entities:
"""
    found = faults('  user: {table: Users, items: {User: {key: ["USER#{name}", ME]}}}', tables)
    told = "\n".join(found)
    for what in (
        "source.schemas: ",
        "source.tables.Users.key.1: 'at' is not among columns",
        "source.tables.Users.columns.id: 'id' is declared json",
        "source.tables.Users.columns.name.first: it leads into 'name'",
        "source.tables.Users.columns.age: write a type: text,",
    ):
        assert what in told


# ── what old tables are asked ──

PATTERNS = (
    ORDER
    + """
access_patterns:
  orders:
    params: {user_id: text, n: integer}
    query: {key: ["USER#{user_id}"]}
    returns: [city]
    old: OLD
"""
)
ORDERS_BY_USER = "{query: {table: Orders, index: by_user, key: {user_id: '{user_id}', at: {ge: '{n:04}'}}}, returns: [total]}"


def test_old_table_is_read_by_its_own_key_and_joins_parents() -> None:
    old = "{get: {table: Lines, key: {line: '{n}', order_id: '{user_id}'}}, join: {order: {table: Orders, on: {order_id: order_id}}}, returns: [order.total]}"
    question = checked(PATTERNS.replace("OLD", old)).mapping.patterns["orders"].statements[""]
    assert isinstance(question, DocumentQuestion)
    assert [(key.name, key.type) for key in question.design.key] == [("order_id", "text"), ("line", "number")]
    assert [template.source for template in question.asked.key] == ["{user_id}"]
    assert question.returns == ("order.total",)
    indexed = checked(PATTERNS.replace("OLD", ORDERS_BY_USER)).mapping.patterns["orders"].statements[""]
    assert isinstance(indexed, DocumentQuestion)
    (index,) = indexed.design.indexes
    assert (index.name, [key.name for key in index.attributes]) == ("by_user", ["user_id", "at"])


@pytest.mark.parametrize(
    "old",
    [
        "{query: {table: Order, key: {order_id: '{user_id}'}}}",
        "{query: {table: Orders, key: {user_id: '{user_id}'}}}",
        "{get: {table: Lines, key: {order_id: '{user_id}'}}}",
        "{get: {table: Users, key: {id: '{user}'}}}",
        "{get: {table: Lines, key: {order_id: x, line: 'L{n}'}}}",
        "{batch_get: {table: Users, key: {id: '{user_id}'}}}",
        "{get: {table: Users, key: {id: '{user_id}'}}, returns: [name, age]}",
        "{get: {table: Users, key: {id: '{user_id}'}}, returns: [nam]}",
        "{get: {table: Users, key: {id: '{user_id}'}}}",
        "{join: {u: {table: Users, on: {user_id: id}}}}",
        "{query: {table: Orders, index: by, key: {tags: '{user_id}'}}}",
        "{get: {table: Lines, key: {order_id: x, line: '{n}'}}, join: {u: {table: Users, on: {line: id}}}, returns: [u.name]}",
        "{query: {table: Orders, key: {order_id: '{user_id}'}, limit: user_id}}",
        "{query: {table: Users, key: {id: '{user_id}'}, filter: {name: nobody}}}",
        "SELECT 1",
    ],
    ids=[
        "source-tables",
        "orders-order",
        "lines-line",
        "you-mean",
        "line-number",
        "takes-exactly",
        "names-column",
        "did-you-mean",
        "users-column",
        "needs-get",
        "declares",
        "link-sides",
        "must-integer",
        "parameter",
        "write",
    ],
)
def test_invalid_old_table_query_is_reported_with_its_place(old: str) -> None:
    found = faults(PATTERNS.replace("OLD", old))
    assert pins.said(fault for fault in found if fault.startswith("access_patterns.orders")), found


def test_each_kind_of_source_is_queried_in_its_own_language() -> None:
    sql = PATTERNS.replace("old: OLD", "sql: SELECT 1")
    assert pins.said(faults(sql), "asks")
    both = PATTERNS.replace("OLD", f"{ORDERS_BY_USER}\n    sql: SELECT 1")
    assert pins.said(faults(both), "two")
    parts = PATTERNS.replace("OLD", "{a: {get: {table: Users, key: {id: x}}, returns: [name]}}")
    assert pins.said(faults(parts), "returns")


def test_database_is_not_queried_like_old_tables() -> None:
    head, _, rest = TABLES.partition("  timezone")
    mapping = head + "  timezone: UTC\n" + rest[rest.index("table: {name") :]
    parsed = examine_mapping(mapping + PATTERNS.replace("OLD", ORDERS_BY_USER), "shop.yaml")
    assert pins.said(fault.what for fault in check_form(parsed))
