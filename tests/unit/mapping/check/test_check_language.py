"""Wrong uses of climbs, computed columns, tenants, filters of lists, indexes and S3, each with its message."""

from __future__ import annotations

import pytest

from migrator.model.errors import MappingError
from tests import pins
from tests.golden.heart import check, facts, table

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
LINES = table(
    "line", {"id": "integer!", "node_id": "integer", "sku": "text"}, references={"node_id": "node.id"}
)
WIDE = table("wide", {"id": "integer!", "a": "text", "b": "binary", "flag": "boolean"})
SCHEMA = facts(NODES, LINES, WIDE)

HEAD = """
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


WRONG: list[tuple[str, str]] = [
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

WARNED: list[tuple[str, str]] = [
    ("items that meet", node().replace("Node:", "Other: {key: [\"NODE#{other|or:'0'}\", META]}\n      Node:")),
    ("an unpadded path", node("climb: {line: up}", '"P#{line.id|path}"')),
]  # fmt: skip


def serious(text: str, head: str) -> list[str]:
    with pytest.raises(MappingError) as caught:
        check(text, SCHEMA, head)
    return [str(fault) for fault in caught.value.faults if not fault.warning]


@pytest.mark.parametrize("text", [case[1] for case in WRONG], ids=[case[0] for case in WRONG])
def test_wrong_use_is_a_fault(text: str) -> None:
    found = serious(text, HEAD % "")
    assert pins.said(found)


def test_a_pattern_asks_for_a_climbs_path_and_depth_as_they_are_stored() -> None:
    assert list(check(CLIMBED % "R#{root|lower}", SCHEMA, HEAD % "").mapping.patterns) == ["child", "level"]


@pytest.mark.parametrize("table", [case[1] for case in TABLES], ids=[case[0] for case in TABLES])
def test_a_table_that_dynamodb_would_refuse_is_a_fault(table: str) -> None:
    found = serious(node(), f"mapping: 1\ntable: {table}")
    assert pins.said(found)


@pytest.mark.parametrize("text", [case[1] for case in WARNED], ids=[case[0] for case in WARNED])
def test_a_risk_is_a_warning(text: str) -> None:
    warnings = check(text, SCHEMA, HEAD % "").warnings
    assert pins.said(warnings)


def test_a_key_that_could_be_too_long_is_a_warning() -> None:
    long = table("node", {"id": "integer!", "name": "text"})
    column = long.columns[1]
    kind = type(column.kind)("text", length=400)
    schema = facts(type(long)("node", "node", (long.columns[0], type(column)("name", "name", kind)), ("id",)))
    warnings = check(node("", '"N#{name}"'), schema, HEAD % "").warnings
    assert pins.said(str(one) for one in warnings)


def test_two_faults_on_one_line_are_two_faults() -> None:
    found = serious('entities: {node: {items: {Node: {key: ["N#{idd}", "{nam|lowr}"]}}}}', HEAD % "")
    assert len(found) == 2
    assert len({fault.partition(": ")[0] for fault in found}) == 1


@pytest.mark.slow
def test_a_mapping_of_five_thousand_lines_is_checked() -> None:
    one = '  e{n}:\n    table: node\n    items:\n      N{n}:\n        key: ["N{n}#{{id}}", META]\n'
    text = "entities:\n" + "".join(one.replace("{n}", str(n)).replace("{{id}}", "{id}") for n in range(1_000))
    assert text.count("\n") > 5_000
    assert len(check(text, SCHEMA, HEAD % "").entities) == 1_000


def test_a_mapping_of_five_thousand_faults_names_them_all() -> None:
    attributes = "".join(f"          a{n}: nam{n}x\n" for n in range(5_000))
    text = f'entities:\n  node:\n    items:\n      Node:\n        key: ["N#{{id}}", M]\n        attributes:\n{attributes}'
    assert len(serious(text, HEAD % "")) == 5_000
