"""Golden files of the designs: the items and answers required by the articles, written by hand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from migrator.mapping.language.document import plain_of
from migrator.mapping.model.table import Item, SetOf

ROOT = Path(__file__).parents[2]
DESIGNS = ROOT / "mappings" / "designs"
GOLDEN = ROOT / "tests" / "golden" / "designs"

NAMES = sorted(path.stem for path in DESIGNS.glob("*.yaml"))
"""The designs: each is a .yaml, .sql and .md of one name, and a golden file."""

Rows = list[list[Any]]


@dataclass(frozen=True)
class GoldenQuery:
    """`params`: texts, as typed. `answer`: by part, '' if the pattern has no parts."""

    pattern: str
    params: dict[str, str]
    answer: dict[str, Rows]

    @property
    def name(self) -> str:
        return " ".join([self.pattern, *(f"{name}={value}" for name, value in self.params.items())])


@dataclass(frozen=True)
class Golden:
    """`in_index`: per index, the base keys of all its items, in order."""

    items: list[Item]
    absent: list[tuple[Any, ...]]
    in_index: dict[str, Rows]
    count: int
    queries: list[GoldenQuery]


def read_golden(name: str) -> Golden:
    """The golden file of the design. Raises: KeyError if `items`, `count` or `queries` are missing."""
    return golden_of(plain_of((GOLDEN / f"{name}.yaml").read_text(encoding="utf-8")))


def golden_of(written: dict[str, Any]) -> Golden:
    return Golden(
        items=[value_of(item) for item in written["items"]],
        absent=[tuple(value_of(key)) for key in written.get("absent", [])],
        in_index=value_of(written.get("in_index", {})),
        count=written["count"],
        queries=[_query(one) for one in written["queries"]],
    )


def _query(written: dict[str, Any]) -> GoldenQuery:
    params = {name: _param(value) for name, value in written.get("params", {}).items()}
    answer = value_of(written["answer"])
    return GoldenQuery(written["pattern"], params, answer if isinstance(answer, dict) else {"": answer})


def _param(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def value_of(written: Any) -> Any:
    """The value with {n: "149.99"} as an exact number, and {set: [a, b]} as a set."""
    if isinstance(written, list):
        return [value_of(one) for one in written]
    if isinstance(written, dict):
        if written.keys() == {"set"}:
            return SetOf(value_of(written["set"]))
        number = written.get("n") if len(written) == 1 else None
        return (
            Decimal(number) if number is not None else {name: value_of(one) for name, one in written.items()}
        )
    assert not isinstance(written, float), f"{written}: write a number with decimals as {{n: …}}"
    return written
