"""climb: a row with its ancestors, root first, on every engine."""

from __future__ import annotations

from migrator.runtime.errors import RowError
from tests import pins
from tests.language.conftest import Database
from tests.language.context import HEAD, items, plain

TREE = """
CREATE TABLE node (id INTEGER PRIMARY KEY, parent_id INTEGER REFERENCES node (id), slug VARCHAR(20), name VARCHAR(40));
INSERT INTO node VALUES (1, NULL, 'root', 'Acme'), (2, 1, 'eng', 'Engineering'), (3, 2, 'cloud', 'Cloud'),
  (4, 3, 'aws', 'AWS'), (5, 1, 'engineering', 'Other');
"""
NODES = (
    HEAD
    + """
entities:
  node:
    climb: {line: parent_id}
    items:
      Node:
        key: ["ORG#{line.slug|first}", "PATH#{line.slug|path}#"]
        GSI1: ["DEPTH#{line.id|depth}", "{line.id:04|path}"]
        keep: [name]
        attributes: {depth: line.id|depth, path: line.slug|path, crumbs: {each: line, attributes: {id: id, name: name}}}
"""
)


def test_a_path_has_every_ancestor_root_first(database: Database) -> None:
    found = items(database(TREE), NODES)
    assert plain(found, "PK", "SK", "GSI1PK", "GSI1SK", "depth") == [
        ("ORG#root", "PATH#root#", "DEPTH#1", "0001", 1),
        ("ORG#root", "PATH#root#eng#", "DEPTH#2", "0001#0002", 2),
        ("ORG#root", "PATH#root#eng#cloud#", "DEPTH#3", "0001#0002#0003", 3),
        ("ORG#root", "PATH#root#eng#cloud#aws#", "DEPTH#4", "0001#0002#0003#0004", 4),
        ("ORG#root", "PATH#root#engineering#", "DEPTH#2", "0001#0005", 2),
    ]
    assert found[2]["crumbs"] == [
        {"id": 1, "name": "Acme"},
        {"id": 2, "name": "Engineering"},
        {"id": 3, "name": "Cloud"},
    ]
    assert found[1]["path"] == "root#eng"


def test_ancestors_by_columns_that_declare_nothing(database: Database) -> None:
    script = TREE.replace(" REFERENCES node (id)", "")
    assert items(database(script), NODES) == items(
        database(TREE), NODES.replace("line: parent_id", "line: {parent_id: id}")
    )


def test_one_ancestor_by_its_place_from_the_top(database: Database) -> None:
    below = NODES.replace("ORG#{line.slug|first}", "ORG#{line.slug|at:2|or:'top'}").replace(
        "line.slug|path, crumbs", "line.id|at:3, crumbs"
    )
    assert plain(items(database(TREE), below), "PK", "path") == [
        ("ORG#top", None),
        ("ORG#eng", None),
        ("ORG#eng", 3),
        ("ORG#eng", 3),
        ("ORG#engineering", None),
    ]


def test_a_cycle_refuses_the_row(database: Database) -> None:
    url = database(TREE + "UPDATE node SET parent_id = 4 WHERE id = 2;")
    with pins.refused(RowError):
        items(url, NODES)


def test_a_row_that_is_its_own_parent_is_a_cycle(database: Database) -> None:
    url = database(TREE + "UPDATE node SET parent_id = 1 WHERE id = 1;")
    with pins.refused(RowError):
        items(url, NODES)


def test_a_hundred_levels_are_taken_and_one_more_is_refused(database: Database) -> None:
    rows = "".join(
        f"INSERT INTO node VALUES ({n}, {n - 1 if n > 10 else 'NULL'}, 's{n}', '');" for n in range(10, 110)
    )
    deep = TREE.partition("INSERT")[0] + rows
    assert [item["depth"] for item in items(database(deep), NODES)] == list(range(1, 101))
    with pins.refused(RowError):
        items(database(deep + "INSERT INTO node VALUES (110, 109, 's', '');"), NODES)


def test_name_with_the_separator_refuses_the_row_unless_escaped(database: Database) -> None:
    url = database(TREE + "UPDATE node SET slug = 'r#d' WHERE id = 2;")
    with pins.refused(RowError):
        items(url, NODES)
    escaped = NODES.replace("line.slug|path", "line.slug|escape|path")
    assert items(url, escaped)[1]["SK"] == "PATH#root#r%23d#"


def test_a_null_in_the_line_is_a_null(database: Database) -> None:
    url = database(TREE + "UPDATE node SET slug = NULL WHERE id = 2;")
    with pins.refused(RowError):
        items(url, NODES)


def test_a_key_of_two_columns(database: Database) -> None:
    script = """
    CREATE TABLE folder (org INTEGER, id INTEGER, up_id INTEGER, name VARCHAR(20), PRIMARY KEY (org, id),
      FOREIGN KEY (org, up_id) REFERENCES folder (org, id));
    INSERT INTO folder VALUES (1, 1, NULL, 'a'), (1, 2, 1, 'b'), (2, 1, NULL, 'x'), (2, 2, 1, 'y');
    """
    text = """
entities:
  folder:
    climb: {line: [org, up_id]}
    items:
      Folder: {key: ["ORG#{org}", "FOLDER#{line.name|path}#"]}
"""
    found = items(database(script), HEAD + text)
    assert plain(found, "PK", "SK") == [
        ("ORG#1", "FOLDER#a#"),
        ("ORG#1", "FOLDER#a#b#"),
        ("ORG#2", "FOLDER#x#"),
        ("ORG#2", "FOLDER#x#y#"),
    ]
