"""What `migrator export --as electrodb` writes: compiled, asked every pattern, and making every item's keys."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from migrator.features.exports.electrodb import electrodb_typescript
from tests.designs.golden import script_of
from tests.designs.moved import Moved, moved, moved_by
from tests.exports.odd_parameters import NOTES, QUESTIONS, REFUSED, SCRIPT
from tests.exports.shop import SHOP, SHOP_QUERIES, SHOP_SCRIPT
from tests.exports.typescript import HEAD, Asked, answered, compiled, described, plain, sqlite_with
from tests.support_chinook import golden_runs
from tools.pages.golden import NAMES, ROOT, Golden, GoldenQuery

pytestmark = pytest.mark.xdist_group("node")

NOTHING = Golden([], [], {}, 0, [])
ODD = Path(__file__).with_name("odd")


@pytest.fixture(scope="module")
def shipped(
    tmp_path_factory: pytest.TempPathFactory, dynamodb_url: str, chinook_dir: Path
) -> Iterator[list[tuple[Moved, Sequence[GoldenQuery]]]]:
    """Every shipped mapping on SQLite, moved, with what its patterns are asked."""
    folder = tmp_path_factory.mktemp("typescript")
    with ExitStack() as stack:
        found: list[tuple[Moved, Sequence[GoldenQuery]]] = []
        for name in NAMES:
            url = sqlite_with(folder / f"{name}.db", script_of(name, "sqlite"))
            design = stack.enter_context(moved(name, url, dynamodb_url))
            found.append((design, design.golden.queries))
        shop = moved_by(SHOP, sqlite_with(folder / "shop.db", SHOP_SCRIPT), dynamodb_url, NOTHING)
        found.append((stack.enter_context(shop), SHOP_QUERIES))
        chinook = f"sqlite:///{chinook_dir / 'Chinook_Sqlite.sqlite'}"
        music = moved_by(ROOT / "mappings" / "chinook.yaml", chinook, dynamodb_url, NOTHING)
        readme = (chinook_dir / "README.md").read_text(encoding="utf-8")
        runs = [GoldenQuery(run.pattern, run.params, {}) for run in golden_runs(readme)]
        found.append((stack.enter_context(music), runs))
        yield found


def test_modules_answer_as_sql_does_and_make_the_same_items(
    node: Path, shipped: list[tuple[Moved, Sequence[GoldenQuery]]], dynamodb_url: str
) -> None:
    asked = [Asked(design, queries) for design, queries in shipped]
    for one in asked:
        one.add_rows()
    modules = {one.file: electrodb_typescript(described(one.moved), HEAD) for one in asked}
    compiled(node, modules, "usage.ts")
    for one, found in zip(asked, answered(node, dynamodb_url, asked), strict=True):
        for query, answer in zip(one.queries, found["answers"], strict=True):
            _check_answer(one, query, answer)
        _check_items(one, found["items"])


def test_odd_names_and_values_stay_what_they_are(node: Path, tmp_path: Path, dynamodb_url: str) -> None:
    url = sqlite_with(tmp_path / "odd.db", (ODD / "odd.sql").read_text(encoding="utf-8"))
    queries = [GoldenQuery("delete", {"class": "a${b}", "new": "\\n"}, {})]
    with moved_by(ODD / "odd.yaml", url, dynamodb_url, NOTHING) as odd:
        asked = Asked(odd, queries)
        asked.add_rows()
        compiled(node, {asked.file: electrodb_typescript(described(odd), HEAD)})
        (found,) = answered(node, dynamodb_url, [asked])
        _check_answer(asked, queries[0], found["answers"][0])
        assert len(found["answers"][0]) == 1
        _check_items(asked, found["items"])


def test_odd_parameter_is_refused_or_answered_as_sql_does(
    node: Path, tmp_path: Path, dynamodb_url: str
) -> None:
    (tmp_path / "notes.yaml").write_text(NOTES)
    url = sqlite_with(tmp_path / "notes.db", SCRIPT)
    with moved_by(tmp_path / "notes.yaml", url, dynamodb_url, NOTHING) as notes:
        asked = Asked(notes, [], given=[(one.pattern, dict(one.params)) for one in QUESTIONS])
        compiled(node, {asked.file: electrodb_typescript(described(notes), HEAD)})
        (found,) = answered(node, dynamodb_url, [asked])
    outcomes = [
        answer if answer == REFUSED else sorted(one["n"] for one in _records(answer))
        for answer in found["answers"]
    ]
    assert dict(zip(map(repr, QUESTIONS), outcomes, strict=True)) == {
        repr(question): question.found for question in QUESTIONS
    }


def _records(answer: Any) -> list[dict[str, Any]]:
    return answer if isinstance(answer, list) else [answer] if answer else []


def _check_items(one: Asked, made: Sequence[dict[str, Any]]) -> None:
    assert all(golden in one.wanted for golden in one.moved.golden.items)
    for wanted, row, found in zip(one.wanted, one.rows, made, strict=True):
        assert plain(found["item"]) == plain(wanted), (one.file, row)
        assert plain(found["keys"]).items() <= plain(wanted).items(), (one.file, row)
        others = {*found["keys"], one.moved.store.design.type_attribute, *row["attributes"]}
        assert set(wanted) <= others, (one.file, row)


def _check_answer(one: Asked, query: GoldenQuery, answer: Any) -> None:
    both = one.moved.ask(query)
    assert both.same, (one.file, query.name)
    for part in both.parts:
        found = answer.get(part.part.name) if part.part.name else answer
        records = found if isinstance(found, list) else [found] if found is not None else []
        rows = [[record.get(name) for name in part.part.attributes] for record in records]
        order = both.pattern.order
        assert _ordered(rows, order) == _ordered(part.items, order), (one.file, query.name)


def _ordered(rows: Sequence[Sequence[Any]], order: str) -> list[str]:
    """The rows in a form in which equal means the same type, too."""
    exact = [json.dumps([plain(value) for value in row], sort_keys=True) for row in rows]
    return exact if order == "exact" else sorted(exact)
