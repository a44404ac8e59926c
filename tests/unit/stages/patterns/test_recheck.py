"""What a sample says of the row that it is of."""

from __future__ import annotations

from typing import Any

from migrator.mapping.model.evidence import DiffKey, Sample
from migrator.mapping.model.mapping import Param, Part, Pattern
from migrator.mapping.model.results import Example, Hidden
from migrator.mapping.patterns.diff import diffs
from migrator.stages.patterns.replay import Sampler

PATTERN = Pattern(
    "orders", (Param("id", "integer"),), "query", (), parts=(Part("", "Order", ("orderId", "total")),)
)
NAMES = ("orderId", "total")


def sample(number: int, key: tuple[str, ...] | None, **params: str) -> Sample:
    """Of order `number`, whose total is text in the item."""
    rows: list[tuple[Any, ...]] = [(number, 5)]
    (diff,) = diffs(NAMES, rows, [(number, "5")], ordered=False, key=key)
    kind = DiffKey(diff.kind, "", diff.attribute)
    return Sampler(PATTERN, Hidden(), "me", "rev").sample(kind, Example(params, NAMES, diff), 1.0)


def test_samples_of_one_row_have_one_subject_in_every_pattern() -> None:
    one, same, other = (
        sample(1, ("orderId",), id="1"),
        sample(1, ("orderId",), id="2"),
        sample(2, ("orderId",)),
    )
    assert one.subject == same.subject != other.subject


def test_question_identifies_the_row_of_a_one_row_answer() -> None:
    one, same, other = sample(1, (), id="1"), sample(1, (), id="1"), sample(1, (), id="2")
    assert one.subject == same.subject != other.subject


def test_a_row_whose_key_is_not_known_has_none() -> None:
    assert sample(1, None, id="1").subject == ""
