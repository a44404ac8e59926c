from __future__ import annotations

from migrator.source.adapter.tables import above, beneath
from migrator.source.engines.catalogue import Place

A, B, C, D = (Place("public", name) for name in "abcd")


def test_a_line_of_links_is_followed_up_and_down_to_its_end() -> None:
    pairs = [(A, B), (B, C), (D, C)]
    assert above(pairs, [C]) == {A, B, C, D}
    assert beneath(pairs, [A]) == {A, B, C}
    assert beneath(pairs, [C]) == {C}


def test_a_circle_of_links_comes_to_an_end() -> None:
    assert above([(A, B), (B, A), (C, C)], [A, C]) == {A, B, C}
