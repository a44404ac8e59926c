"""Golden cases of column types: a table of one column for each of them, read through one mapping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from migrator.mapping.items.encoder import compile_encoder
from migrator.mapping.model.table import Item
from migrator.runtime.errors import RowError
from tests.golden.heart import alike
from tests.language.context import HEAD, checked, open_source


@dataclass(frozen=True)
class Case:
    """`literal`: SQL of the value of a column of type `declared`; `expected`: what stands in the item.

    `refused`: words of the reason why the row is refused instead. `text`: what `|text` makes of the value.
    `comes_back`: whether `reverse` can write the value.
    """

    declared: str
    literal: str
    expected: Any = None
    refused: str = ""
    text: str | None = None
    comes_back: bool = True

    def __str__(self) -> str:
        return f"{self.declared or 'nothing'} {self.literal}"


@dataclass(frozen=True)
class Made:
    """What a case's row became: an item, or the reason why it did not, of the column itself and of its text."""

    plain: Item | str
    text: Item | str | None


def script_of(cases: Sequence[Case], generated: str = "") -> str:
    """CREATE TABLE and INSERT for each case: t0, t1, …"""
    lines = []
    for number, case in enumerate(cases):
        lines.append(f"CREATE TABLE t{number} (id INTEGER PRIMARY KEY, v {case.declared}{generated});")
        lines.append(f"INSERT INTO t{number} VALUES (1, {case.literal});")
    return "\n".join(lines)


def made_of(url: str, cases: Sequence[Case]) -> list[Made]:
    """What each case's row becomes, in the order of the cases."""
    lines = ["entities:"]
    for number, case in enumerate(cases):
        lines.append(f"  t{number}: {{items: {{Plain: {{key: ['T{number}#{{id}}', P], keep: [v]}}}}}}")
        if case.text is not None:
            item = f"{{key: ['T{number}#{{id}}', T], attributes: {{v: v|text}}}}"
            lines.append(f"  x{number}: {{table: t{number}, items: {{Text: {item}}}}}")
    found = _attempts(url, HEAD + "\n".join(lines))
    return [Made(found[f"t{number}"], found.get(f"x{number}")) for number in range(len(cases))]


def _attempts(url: str, text: str) -> dict[str, Item | str]:
    """By entity, the item of its one row, or why the row is refused."""
    source = open_source(url, text)
    found: dict[str, Item | str] = {}
    try:
        for entity in checked(url, text).entities:
            (row,) = source.read_page(entity.plan, None, None)
            encoder = compile_encoder(entity, source.raw_places(entity.plan))
            assert encoder is not None
            page = source.read_raw(entity.plan, encoder.raw, None, None)
            assert page.raw == encoder.raw
            # By repr: a NaN equals nothing, and 1 equals True.
            assert [repr(page.whole(raw)) for raw in page.rows] == [repr(row)]
            try:
                (found[entity.name],) = alike(entity, row, encoder, page)
            except RowError as error:
                found[entity.name] = str(error)
    finally:
        source.close()
    return found


def assert_golden(case: Case, made: Made) -> None:
    """The item is the expected one, in value and type; a refused row says why and quotes nothing."""
    if case.refused:
        assert isinstance(made.plain, str), made.plain
        assert case.refused in made.plain
    else:
        assert isinstance(made.plain, dict), made.plain
        assert ("v" in made.plain) == (case.literal != "NULL")
        assert_same(made.plain.get("v"), case.expected)
    if case.text is not None:
        assert isinstance(made.text, dict), made.text
        assert made.text["v"] == case.text


def assert_same(found: Any, expected: Any) -> None:
    assert found == expected
    assert type(found) is type(expected)
    if isinstance(expected, list):
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    if isinstance(expected, dict):
        for name in expected:
            assert_same(found[name], expected[name])
