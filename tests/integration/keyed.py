"""One table a type, its key a column of that type; what the rows must be as items, told by plain SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.journeys.command import Project, project
from tests.support_capture import connect

HEAD = """\
mapping: 1
table: {name: Keyed, key: [PK, SK], type: type, ttl: expiresAt}
entities:
"""
ENTITY = """\
  t{number}:
    collect: {{kids: {{count: all, of: c{number}, by: k}}}}
    items:
      T{number}: {{key: ["T{number}#{{id}}", M], keep: [n], attributes: {{kids: kids}}}}
"""
CHILD = """\
  c{number}:
    join: {{parent: {{table: t{number}, on: {{k: k}}}}}}
    items:
      C{number}: {{key: ["C{number}#{{id}}", M], attributes: {{n: parent.n}}}}
"""
JOINED = ("real", "float", "double", "numeric", "enum")
"""Types, by how they begin, of which the children have items too, with what they find by their row's key."""
Values = Mapping[str, Sequence[str]]
"""By declared type, SQL of five different values."""
Found = dict[tuple[str, int], tuple[Any, ...]]


class Keyed:
    """Tables t0, t1, … with three children tables' rows each, captured, in a DynamoDB table of their own."""

    def __init__(self, engine: str, url: str, folder: Path, endpoint: str, values: Values) -> None:
        self.values = values
        self.connection = connect(engine, url)
        self.tables = range(len(values))
        self.joined = [number for number, name in enumerate(values) if name.lower().startswith(JOINED)]
        self.sql = self.connection.cursor()
        entities = [ENTITY.format(number=number) for number in self.tables]
        text = "".join([HEAD, *entities, *(CHILD.format(number=number) for number in self.joined)])
        name = f"K{folder.name[-20:]}".replace("_", "")
        self.project: Project = project(folder, url, endpoint, name, tuning="page_rows: 2", text=text)
        self._fill(engine)

    def _fill(self, engine: str) -> None:
        for number, (declared, values) in enumerate(self.values.items()):
            prefix = "(20)" if engine == "mariadb" and ("TEXT" in declared or "BLOB" in declared) else ""
            null = "" if engine == "mariadb" and declared == "TIMESTAMP" else " NOT NULL"
            self.sql.execute(
                f"CREATE TABLE t{number} (k {declared}{null}, id INTEGER NOT NULL, n INTEGER,"
                f" PRIMARY KEY (k{prefix}), UNIQUE (id))"
            )
            child = "real" if declared == "float8" else declared
            self.sql.execute(f"CREATE TABLE c{number} (id INTEGER PRIMARY KEY, k {child})")
            for row, value in enumerate(values[:4]):
                self.sql.execute(f"INSERT INTO t{number} VALUES ({value}, {row}, {row})")
                self.sql.execute(f"INSERT INTO c{number} VALUES ({row}, {value})")

    def rows_change(self, number: int, values: Sequence[str]) -> None:
        """All rows change, one is deleted, one is new, one gets another key."""
        changes = [f"UPDATE t{number} SET n = n + 10", f"DELETE FROM t{number} WHERE id = 0"]
        if len(values) == 5:
            changes.append(f"INSERT INTO t{number} VALUES ({values[0]}, 4, 4)")
            changes.append(f"UPDATE t{number} SET k = {values[4]} WHERE id = 1")
        for statement in changes:
            self.sql.execute(statement)

    def children_change(self, number: int, values: Sequence[str]) -> None:
        """Children come, go, and move from row to row; the rows themselves stay as they are."""
        if len(values) == 5:
            self.sql.execute(f"INSERT INTO c{number} VALUES (9, {values[2]})")
            self.sql.execute(f"UPDATE c{number} SET k = {values[3]} WHERE id = 2")
        self.sql.execute(f"DELETE FROM c{number} WHERE id = 1")

    def each(self, do: Callable[[int, Sequence[str]], None]) -> None:
        for number, values in enumerate(self.values.values()):
            do(number, values)

    def expected(self) -> Found:
        """(item type, id) with n and the count of children; of children with the n of the row."""
        found: Found = {}
        for number in self.tables:
            self.sql.execute(
                f"SELECT t.id, t.n, (SELECT count(*) FROM c{number} c WHERE c.k = t.k) FROM t{number} t"
            )
            found |= {(f"T{number}", row[0]): (row[1], row[2]) for row in self.sql.fetchall()}
        for number in self.joined:
            self.sql.execute(f"SELECT c.id, t.n FROM c{number} c LEFT JOIN t{number} t ON t.k = c.k")
            found |= {(f"C{number}", row[0]): (row[1],) for row in self.sql.fetchall()}
        return found

    def stored(self) -> Found:
        found: Found = {}
        for item in self.project.items():
            kind, _, number = str(item["PK"]).partition("#")
            if item["type"] == kind:
                value = tuple(
                    None if item.get(name) is None else int(item[name])  # type: ignore[arg-type]
                    for name in (("n", "kids") if kind[0] == "T" else ("n",))
                )
                found[kind, int(number)] = value
        return found

    def wrong(self) -> dict[str, Any]:
        """By declared type, what stands wrong: (what, what should)."""
        expected, stored = self.expected(), self.stored()
        names = list(self.values)
        return {
            f"{names[int(kind[1:])]} {kind[0]}{row}": (stored.get((kind, row)), expected.get((kind, row)))
            for kind, row in sorted(expected.keys() | stored.keys())
            if stored.get((kind, row)) != expected.get((kind, row))
        }
