"""Faults of mapping files: each wrong use with the message that it gets."""

from __future__ import annotations

import pytest

from migrator.mapping.items.changes import captured_tables
from migrator.runtime.errors import MappingError
from tests import pins
from tests.golden.heart import HEAD, check, entity, facts, faults, items, table

USERS = table(
    "users", {"id": "integer!", "email": "text", "org": "text", "seen": "timestamp", "tags": "unknown"}
)
ORDERS = table(
    "orders",
    {"id": "integer!", "user_id": "integer", "total": "number(2)", "status": "text", "PK": "text"},
    references={"user_id": "users.id"},
)
LINES = table("lines", {"order_id": "integer!", "no": "integer!", "name": "text"}, ("order_id", "no"))
LOGS = table("logs", {"text": "text"}, ())
SCHEMA = facts(USERS, ORDERS, LINES, LOGS)

USER = """
entities:
  users:
    items:
      User: {key: ["USER#{id}", META], %s}
"""
ORDER = """
entities:
  orders:
    %s
    items:
      Order: {key: ["ORDER#{id}", META], %s}
"""
PATTERN = """
entities:
  users:
    items:
      User: {key: ["USER#{id}", META], keep: [id], GSI1: ["EMAIL#{email|lower}", "USER#{id:06}"]}
access_patterns:
  p:
    params: {id: integer, email: text}
    %s
    returns: [id]
    sql: SELECT 1
"""

WRONG: list[tuple[str, str]] = [
    ("a column", USER % "keep: [emial]"),
    ("a column in a key", USER % 'GSI1: ["A#{idd}", M]'),
    ("a table", ORDER % ("table: ordres", "")),
    ("a filter", USER % 'attributes: {x: "{email|lowr}"}'),
    ("an index", USER % 'GSI2: ["A", "B"]'),
    ("a map", USER % "attributes: {x: email|map:statuss}"),
    ("a word", USER % "keeep: all"),
    ("a word of an entity", ORDER % ("wher: {a: 1}", "")),
    ("an alias", ORDER % ("join: {user: user_id}", "attributes: {x: usr.email}")),
    ("an earlier alias", ORDER % ("join: {user: usr.user_id}", "")),
    ("no foreign key", ORDER % ("join: {user: total}", "")),
    ("a join that can multiply", ORDER % ("join: {u: {table: users, on: {status: email}}}", "")),
    ("a collection without a key to us", ORDER % ("collect: {l: {of: logs, by: text}}", "")),
    ("two aggregates in one", ORDER % ("collect: {l: {of: lines, by: order_id, sum: no, max: no}}", "")),
    ("a sum of texts", ORDER % ("collect: {l: {of: lines, by: order_id, sum: name}}", "")),
    ("a list as a value", ORDER % ("collect: {l: {of: lines, by: order_id}}", "attributes: {x: l}")),
    ("each of no list", USER % "attributes: {x: {each: l, attributes: {a: b}}}"),
    ("at_most and first", ORDER % ("collect: {l: {of: lines, by: order_id, at_most: 1, first: 1}}", "")),
    ("padding of a text", USER % 'GSI1: [A, "{email:06}"]'),
    ("a time filter on a text", USER % "attributes: {x: email|iso}"),
    ("a format that is none", USER % 'GSI1: [A, "{id:6}"]'),
    ("a format outside of braces", USER % 'attributes: {x: "id:06"}'),
    ("an argument too many", USER % "attributes: {x: email|lower:x}"),
    ("an argument that is none", USER % "attributes: {x: seen|iso:min}"),
    ("a brace that stays open", USER % 'attributes: {x: "{id"}'),
    ("a brace too many", USER % 'attributes: {x: "id}"}'),
    ("an empty brace", USER % 'attributes: {x: "{}"}'),
    ("a key with too few parts", 'entities: {users: {items: {User: {key: ["USER#{id}"]}}}}'),
    ("an index with too many parts", USER % "GSI1: [A, B, C]"),
    ("a kept column of our name", ORDER % ("", "keep: all")),
    ("an attribute of our name", USER % "attributes: {_src: email}"),
    ("a type without a rule", USER % "keep: all"),
    ("a TTL from a text", USER % "ttl: email"),
    ("a table without a key", 'entities: {logs: {items: {Log: {key: ["LOG#{text}", M]}}}}'),
    ("two open parts", 'entities: {users: {items: {User: {key: ["U#{org}#{email}", "{id:06}"]}}}}'),
    ("a pattern without its key", PATTERN % 'query: {key: ["USR#{id}"]}'),
    ("a pattern with another padding", PATTERN % 'query: {key: ["USER#{id:06}"]}'),
    ("a pattern with another filter", PATTERN % 'query: {index: GSI1, key: ["EMAIL#{email}"]}'),
    ("a pattern of no index", PATTERN % 'query: {index: GSI9, key: ["USER#{id}"]}'),
    ("a pattern's parameter", PATTERN % 'query: {key: ["USER#{idd}"]}'),
    ("a range over a partition key", PATTERN % 'query: {key: [{ge: "USER#"}]}'),
    ("a pattern that scans", PATTERN % ""),
    ("two sort conditions", PATTERN % 'query: {key: ["USER#{id}", {ge: A, le: B}]}'),
    ("a sort key that is not there", PATTERN % 'query: {key: ["USER#{id}", PROFILE]}'),
]

WARNED: list[tuple[str, str]] = [
    ("an unpadded number", USER % 'GSI1: [A, "{id}"]'),
    ("a key that nothing proves", 'entities: {users: {items: {E: {key: ["E#{email}", E]}}}}'),
    ("an open prefix", PATTERN % 'query: {key: ["USER#{id}", {begins_with: MET}]}'),
    (
        "an order that the separator breaks",
        PATTERN.replace("META", '"{email}#{id:06}"') % 'query: {key: ["USER#{id}"]}',
    ),
]


@pytest.mark.parametrize("text", [case[1] for case in WRONG], ids=[case[0] for case in WRONG])
def test_wrong_use_is_a_fault(text: str) -> None:
    with pytest.raises(MappingError) as caught:
        check(text, SCHEMA)
    serious = [str(fault) for fault in caught.value.faults if not fault.warning]
    assert pins.said(serious)


@pytest.mark.parametrize("text", [case[1] for case in WARNED], ids=[case[0] for case in WARNED])
def test_a_risk_is_a_warning(text: str) -> None:
    warnings = check(text, SCHEMA).warnings
    assert pins.said(warnings)


def test_every_fault_comes_at_once_with_its_line() -> None:
    text = """
entities:
  users:
    items:
      User:
        key: ["USER#{id}", "{email|lowr}"]
        GSI9: [A, B]
        keep: [emial, seeen]
  orders:
    colect: {}
    items:
      Order: {key: ["ORDER#{idd}", META]}
"""
    first = HEAD.count("\n") + 1
    found = faults(text, SCHEMA)
    lines = sorted(int(fault.split(":")[1]) for fault in found)
    assert lines == [first + 5, first + 6, first + 7, first + 7, first + 9, first + 11]


@pytest.mark.parametrize("type_", ["_tombstone", "_control"])
def test_a_type_of_our_own_is_refused(type_: str) -> None:
    found = faults(USER.replace("User: {", f"{type_}: {{") % "keep: [id]", SCHEMA)
    assert pins.said(found, type=type_)


@pytest.mark.parametrize(
    ("index", "warned"),
    [
        ("{key: [SK, PK], project: keys}", True),
        ("{key: [SK], project: [email]}", True),
        ("{key: [SK, PK]}", False),
        ("{key: [SK, PK], project: [type, email]}", False),
        ("{key: [SK, GSI1SK], project: keys}", False),
    ],
)
def test_index_read_without_tombstone_filter_is_a_warning(index: str, *, warned: bool) -> None:
    head = HEAD.replace("    GSI1: {key", f"    ByBack: {index}\n    GSI1: {{key")
    found = faults(USER % "keep: [id, email]", SCHEMA, head)
    if warned:
        assert pins.said(found)
    else:
        assert not pins.said_by("test_index_read_without_tombstone_filter_is_a_warning", found)


NODES = table(
    "node",
    {
        "id": "integer!",
        "up": "integer",
        "other": "integer",
        "name": "text",
        "total": "number(2)",
        "at": "timestamp",
    },
    references={"up": "node.id"},
)
NODE_LINES = table(
    "line", {"id": "integer!", "node_id": "integer", "sku": "text"}, references={"node_id": "node.id"}
)
WIDE = table("wide", {"id": "integer!", "a": "text", "b": "binary", "flag": "boolean"})
NODE_SCHEMA = facts(NODES, NODE_LINES, WIDE)

NODE_HEAD = """
mapping: 1
%s
table:
  name: Shop
  key: [PK, SK]
  type: type
  indexes:
    GSI1: {key: [GSI1PK, GSI1SK]}
    ByScore: {key: [[tenant, area], {name: score, type: number}]}
    ByBytes: {key: [{name: bytes, type: binary}]}
    Local: {key: [PK, {name: amount, type: number}], local: true}
"""
NODE = """
entities:
  node:
    %s
    items:
      Node: {key: ["NODE#{id}", %s], %s}
"""


def node(more: str = "", sort: str = "META", rest: str = "keep: [id]") -> str:
    return NODE % (more, sort, rest)


CLIMBED = """
entities:
  node:
    climb: {line: up}
    items:
      Node: {key: ["R#{line.name|at:2|lower}", "P#{line.id:04|path}#"], GSI1: ["D#{line.id|depth}", "{name|or:'x'}"]}
access_patterns:
  child: {params: {root: text, path: text}, get: {key: ["%s", "P#{path}#"]}, returns: [PK], sql: SELECT 1}
  level: {params: {depth: integer}, query: {index: GSI1, key: ["D#{depth}"]}, returns: [PK], sql: SELECT 1}
"""


WRONG_NODES: list[tuple[str, str]] = [
    ("a climb by no column", node("climb: {line: upp}")),
    ("a climb by no key", node("climb: {line: {up: name}}")),
    ("a climb of two columns", node("climb: {line: [up, other]}")),
    ("a climb named as a column", node("climb: {name: up}")),
    ("a climb named as a join", node("join: {x: up}, climb: {x: up}".replace(", ", "\n    "))),
    ("a list in a template", node("climb: {line: up}", '"{line.name}"')),
    ("a list's filter on one value", node("", '"{name|path}"')),
    ("two filters of lists", node("climb: {line: up}", '"{line.name|path|first}"')),
    ("the ancestor at no place", node("climb: {line: up}", '"{line.name|at:0}"')),
    ("a pattern by another form of an ancestor", CLIMBED % "R#{root}"),
    ("a list in a condition", node("climb: {line: up}", rest="when: line.name")),
    ("a list's column", node("climb: {line: up}", '"{line.nam|path}"')),
    ("desc of a plain number", node("", '"{id|desc}"')),
    ("desc of a name", node("", '"{name|desc}"')),
    ("a computed column's type", node("columns: {x: {sql: id + 1, type: int}}")),
    ("a computed column's name", node("columns: {name: id + 1}")),
    ("a transform's form", node("transform: shop.rules")),
    ("a transform's value without one", node("", '"{transform.x}"')),
    ("transform as an alias", node("join: {transform: up}")),
    ("an alias with a dot", node('join: {"a.b": up}')),
    ("an entity with a colon", node().replace("  node:\n", '  "no:de":\n    table: node\n')),
    ("@schema without schemas", node("", '"{@schema}"')),
    ("S3 inside of a map", node(rest="attributes: {x: {map: {y: {from: name, to: s3}}}}")),
    ("S3 to elsewhere", node(rest="attributes: {x: {from: name, to: s4}}")),
    ("a text in a number key", node(rest='ByScore: [a, b, "X{id}"]')),
    ("a name in a number key", node(rest='ByScore: [a, b, "{name}"]')),
    ("a padded number in a number key", node(rest='ByScore: [a, b, "{id:06}"]')),
    ("a text in a binary key", node(rest='ByBytes: ["{name}"]')),
    ("a plain attribute of another type", node(rest="attributes: {amount: name}")),
    ("a constant of another type", node(rest="attributes: {tenant: {const: 7}}")),
    ("too few parts", node(rest="ByScore: [a, b]")),
    ("the table's part in a local index", node(rest='Local: ["X#{id}", "{total}"]')),
]  # fmt: skip


def indexed(indexes: str) -> str:
    return f"{{name: TTT, key: [PK, SK], type: t, indexes: {{{indexes}}}}}"


TABLES: list[tuple[str, str]] = [
    ("a local index elsewhere", "{name: TTT, key: [PK, SK], type: t, indexes: {L01: {key: [A, B], local: true}}}"),
    ("a local index without a sort key", "{name: TTT, key: [PK], type: t, indexes: {L01: {key: [PK, B], local: true}}}"),
    ("two types of one attribute", "{name: TTT, key: [PK, SK], type: t, indexes: {G01: {key: [{name: SK, type: number}]}}}"),
    ("one attribute twice", "{name: TTT, key: [PK, SK], type: t, indexes: {G01: {key: [[A, A], B]}}}"),
    ("the discriminator as a key", "{name: TTT, key: [PK, SK], type: t, indexes: {G01: {key: [t]}}}"),
    ("a short name", "{name: TTT, key: [PK, SK], type: t, indexes: {G: {key: [A]}}}"),
    ("many indexes", indexed(", ".join(f"G{n:02}: {{key: [A{n}]}}" for n in range(21)))),
    ("many local indexes", indexed(", ".join(f"L{n:02}: {{key: [PK, A{n}], local: true}}" for n in range(6)))),
    ("many projected", indexed(f"G01: {{key: [A], project: [{', '.join(f'x{n}' for n in range(101))}]}}")),
]  # fmt: skip

WARNED_NODES: list[tuple[str, str]] = [
    ("items that meet", node().replace("Node:", "Other: {key: [\"NODE#{other|or:'0'}\", META]}\n      Node:")),
    ("an unpadded path", node("climb: {line: up}", '"P#{line.id|path}"')),
]  # fmt: skip


def serious(text: str, head: str) -> list[str]:
    with pytest.raises(MappingError) as caught:
        check(text, NODE_SCHEMA, head)
    return [str(fault) for fault in caught.value.faults if not fault.warning]


@pytest.mark.parametrize("text", [case[1] for case in WRONG_NODES], ids=[case[0] for case in WRONG_NODES])
def test_wrong_use_of_lists_and_indexes_is_a_fault(text: str) -> None:
    found = serious(text, NODE_HEAD % "")
    assert pins.said(found)


def test_pattern_reads_a_climbs_path_and_depth_as_stored() -> None:
    assert list(check(CLIMBED % "R#{root|lower}", NODE_SCHEMA, NODE_HEAD % "").mapping.patterns) == [
        "child",
        "level",
    ]


def test_check_takes_a_table_at_its_limits() -> None:
    full = [f"G{n:02}: {{key: [A{n}]}}" for n in range(20)]
    full[0] = f"G00: {{key: [A0], project: [{', '.join(f'x{n}' for n in range(99))}, t]}}"
    full += [f"L{n:02}: {{key: [PK, B{n}], local: true}}" for n in range(5)]
    head = f"mapping: 1\ntable: {indexed(', '.join(full))}\n"
    text = "entities:\n  node: {items: {Node: {key: ['NODE#{id}', META]}}}\n"
    assert len(check(text, NODE_SCHEMA, head).entities) == 1


@pytest.mark.parametrize("table", [case[1] for case in TABLES], ids=[case[0] for case in TABLES])
def test_a_table_that_dynamodb_would_refuse_is_a_fault(table: str) -> None:
    found = serious(node(), f"mapping: 1\ntable: {table}")
    assert pins.said(found)


@pytest.mark.parametrize("text", [case[1] for case in WARNED_NODES], ids=[case[0] for case in WARNED_NODES])
def test_a_risk_of_lists_is_a_warning(text: str) -> None:
    warnings = check(text, NODE_SCHEMA, NODE_HEAD % "").warnings
    assert pins.said(warnings)


def test_a_key_that_could_be_too_long_is_a_warning() -> None:
    long = table("node", {"id": "integer!", "name": "text"})
    column = long.columns[1]
    kind = type(column.kind)("text", length=400)
    schema = facts(type(long)("node", "node", (long.columns[0], type(column)("name", "name", kind)), ("id",)))
    warnings = check(node("", '"N#{name}"'), schema, NODE_HEAD % "").warnings
    assert pins.said(str(one) for one in warnings)


def test_two_faults_on_one_line_are_two_faults() -> None:
    found = serious('entities: {node: {items: {Node: {key: ["N#{idd}", "{nam|lowr}"]}}}}', NODE_HEAD % "")
    assert len(found) == 2
    assert len({fault.partition(": ")[0] for fault in found}) == 1


@pytest.mark.slow
def test_a_mapping_of_five_thousand_lines_is_checked() -> None:
    one = '  e{n}:\n    table: node\n    items:\n      N{n}:\n        key: ["N{n}#{{id}}", META]\n'
    text = "entities:\n" + "".join(one.replace("{n}", str(n)).replace("{{id}}", "{id}") for n in range(1_000))
    assert text.count("\n") > 5_000
    assert len(check(text, NODE_SCHEMA, NODE_HEAD % "").entities) == 1_000


def test_a_mapping_of_five_thousand_faults_names_them_all() -> None:
    attributes = "".join(f"          a{n}: nam{n}x\n" for n in range(5_000))
    text = f'entities:\n  node:\n    items:\n      Node:\n        key: ["N#{{id}}", M]\n        attributes:\n{attributes}'
    assert len(serious(text, NODE_HEAD % "")) == 5_000


VERSIONED = facts(
    table(
        "orders",
        {
            "id": "integer!",
            "user_id": "integer!",
            "lock": "integer!",
            "maybe": "integer",
            "whole": "number(0)!",
            "cents": "number(2)!",
            "label": "text!",
            "seen": "timestamp!",
            "two words": "integer!",
        },
        references={"user_id": "users.id"},
    ),
    table("users", {"id": "integer!", "lock": "integer!"}),
)
TEXT = """
entities:
  order:
    table: orders
    join: {user: user_id}
    columns: {twice: {sql: "lock * 2", type: integer}}
    attributes: {note: label, theirs: user.id}
    version: %s
    items:
      Order: {key: ["ORDER#{id}", META], attributes: {title: label}}
      Line: {key: ["ORDER#{id}", LINE], keep: [lock, label]}
"""
LINE = len(HEAD.splitlines()) + TEXT[: TEXT.index("version")].count("\n") + 1


@pytest.mark.parametrize(
    ("version", "attribute"),
    [
        ("lock", "lock"),
        ("whole", "whole"),
        ("{attribute: version, from: lock}", "version"),
        ("two words", "two words"),
    ],
)
def test_every_item_carries_the_version(version: str, attribute: str) -> None:
    assert faults(TEXT % version, VERSIONED) == []
    row = {"id": 7, "user_id": 1, "lock": 3, "whole": 3, "two words": 3, "label": "x", "user.lock": 9}
    made = items(entity(TEXT % version, VERSIONED), row)
    assert [one[attribute] for one in made] == [3, 3]


WRONG_VERSIONS = {
    "no column": ("lok", "table orders has no column 'lok'; did you mean 'lock'?"),
    "not whole": ("cents", "'cents' is number (number(2)!); optimistic locking needs whole numbers"),
    "a text": ("label", "'label' is text"),
    "a time": ("{attribute: v, from: seen}", "'seen' is timestamp"),
    "a column of a parent": ("user.lock", "name one column of the row itself, without a filter"),
    "a filter": ("lock|text", "name one column of the row itself, without a filter"),
    "a template": ('"{lock}"', "name one column of the row itself, without a filter"),
    "several columns": ('"lock,id|geohash:5"', "name one column of the row itself, without a filter"),
    "a computed column": ("twice", "'twice' is not a column of orders"),
    "an attribute of ours": ("{attribute: _tk, from: lock}", "'_tk' is reserved for migrator"),
    "a key": ("{attribute: PK, from: lock}", "'PK' is reserved for migrator"),
    "the ttl": ("{attribute: expiresAt, from: lock}", "'expiresAt' is reserved for migrator"),
    "an attribute of the entity": ("{attribute: note, from: lock}", "'note' is also in attributes"),
    "an attribute of an item": (
        "{attribute: title, from: lock}",
        "'title' is also in items.Order.attributes",
    ),
    "half of a form": ("{attribute: v}", "'from' is missing"),
    "a list": ("[lock]", "version"),
    "a number": ("7", "version"),
    "nothing": ('""', "version"),
}


@pytest.mark.parametrize("name", WRONG_VERSIONS)
def test_a_wrong_version_is_a_fault_with_its_line(name: str) -> None:
    version, message = WRONG_VERSIONS[name]
    found = [one for one in faults(TEXT % version, VERSIONED) if ": warning: " not in one]
    assert any(message in one for one in found), found
    assert all(one.startswith(f"m.yaml:{LINE}: entities.order.version") for one in found), found


def test_a_column_that_may_be_null_is_a_warning() -> None:
    (warning,) = faults(TEXT % "maybe", VERSIONED)
    assert warning.startswith(f"m.yaml:{LINE}: warning: entities.order.version: 'maybe' may be NULL")
    row = {"id": 7, "user_id": 1, "lock": 3, "label": "x"}
    assert not [one for one in items(entity(TEXT % "maybe", VERSIONED), row) if "maybe" in one]


def test_a_change_of_the_version_alone_leaves_a_mark() -> None:
    plain = "".join(line for line in TEXT.splitlines(keepends=True) if "columns:" not in line)
    (made,) = check(plain % "{attribute: v, from: whole}", VERSIONED).entities
    assert "whole" in (captured_tables([made.plan])["orders"].watched or ())
