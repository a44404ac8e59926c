"""A source is three ports, and what is no wiring asks for the one that it needs."""

from __future__ import annotations

import ast
from pathlib import Path

from migrator.model.edges import CountedRows, Questions, Rows, Source, Totals

HOUSE = Path(__file__).resolve().parents[2] / "migrator"
ASKS_FOR_ALL = {
    "stages/patterns/replay.py",
    "cli/design/init.py",
}
"""Parameters are drawn from rows, and what they answer is asked: both of one source. So it is with a proposal, which is made by
statements and proved on rows."""


def _imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {name.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for name in node.names}


def _public(port: type) -> set[str]:
    return {name for one in port.__mro__ for name in vars(one) if not name.startswith("_")} - {"Protocol"}


def test_a_source_is_its_three_ports_and_nothing_else() -> None:
    assert _public(Source) == _public(Rows) | _public(Totals) | _public(Questions)
    assert _public(CountedRows) == _public(Rows) | _public(Totals)
    ports = [_public(Rows), _public(Totals), _public(Questions)]
    assert sum(map(len, ports)) == len(set.union(*ports))


def test_only_wiring_knows_the_sql_source_and_only_two_ask_for_all_ports() -> None:
    rooms = [path for path in sorted(HOUSE.rglob("*.py")) if HOUSE / "source" not in path.parents]
    by_class = [
        path for path in rooms if "SqlSource" in _imports(path) and HOUSE / "wiring" not in path.parents
    ]
    assert not by_class
    whole = {
        str(path.relative_to(HOUSE))
        for path in rooms
        if "Source" in _imports(path) and HOUSE / "model" not in path.parents
    }
    assert whole == ASKS_FOR_ALL
