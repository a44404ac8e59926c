"""Item collections counted as items come: exact, above what is kept at once, and of rows chosen by chance."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from migrator.mapping.capacity.collections import ItemCollections, Measured, spread_of
from migrator.mapping.model.capacity import Spread


def measured(sizes: Iterable[tuple[str, int]], kept: int = 1_000, weight: float = 1.0) -> Measured:
    """Of items of 100 bytes each: so many under each key."""
    collections = ItemCollections(kept)
    for key, items in sizes:
        for _ in range(items):
            collections.add((key,), "Order", 100, weight)
    return collections.measured(10)


def test_few_collections_are_exact() -> None:
    made = measured([("a", 1), ("b", 2), ("c", 7)])
    assert (made.collections, made.entries, made.bytes, made.exact) == (3, 10, 1_000, True)
    assert (made.counts, made.sizes) == (Spread(2, 7, 7), Spread(200, 700, 700))
    assert [collection.key for collection in made.largest] == [("c",), ("b",), ("a",)]


def test_nothing_has_no_collections() -> None:
    made = measured([])
    assert (made.collections, made.sizes, made.largest, made.exact) == (0, Spread(0, 0, 0), [], True)


def test_the_largest_of_equal_ones_do_not_depend_on_their_order() -> None:
    names = [f"k{number}" for number in range(50)]
    one, other = (measured((name, 1) for name in order) for order in (names, names[::-1]))
    assert [made.key for made in one.largest] == [made.key for made in other.largest]


@pytest.mark.parametrize("seed", range(3))
def test_largest_collections_are_exact_and_the_rest_estimated(seed: int) -> None:
    rng = random.Random(seed)
    many = [(f"customer {number}", rng.randint(1, 9)) for number in range(40_000)]
    large = [(f"large {number}", 500 + number) for number in range(10)]
    order = [*large, *many]
    rng.shuffle(order)
    made = measured(order, kept=2_000)
    assert not made.exact
    assert [collection.items for collection in made.largest] == [500 + number for number in range(9, -1, -1)]
    assert made.counts.most == 509
    assert made.collections == pytest.approx(40_010, rel=0.15)
    assert made.counts.p50 == pytest.approx(5, abs=1)
    assert made.entries == sum(items for _, items in order)


def test_no_more_are_kept_than_allowed() -> None:
    collections = ItemCollections(1_000)
    for number in range(20_000):
        collections.add((f"k{number}",), "Order", 100, 1.0)
        assert len(collections._by_key) <= 1_000


def test_rows_by_chance_tell_small_collections_from_large_ones() -> None:
    rng = random.Random(4)
    items = [f"small {n // 4}" for n in range(80_000)] + ["large"] * 20_000
    collections = ItemCollections()
    for key in rng.sample(items, 5_000):
        collections.add((key,), "Order", 100, 20.0)
    made = collections.measured(3)
    assert not made.exact
    assert made.entries == 100_000
    assert made.largest[0].key == ("large",)
    assert made.counts.most == pytest.approx(20_000, rel=0.1)
    # 20,000 small ones with four items each; each item that was seen stands for twenty.
    assert made.collections == pytest.approx(20_001, rel=0.4)
    assert made.counts.p50 == pytest.approx(4, abs=2)


def test_percentiles_are_those_of_the_nearest_rank() -> None:
    assert spread_of([(float(number), 1.0) for number in range(1, 101)]) == Spread(50, 99, 100)
    assert spread_of([(3.0, 99.0), (7.0, 1.0)]) == Spread(3, 3, 7)


def test_sampling_makes_no_small_collection_seem_large() -> None:
    rng = random.Random(7)
    orders = [(f"order {number}", sum(rng.random() < 1 / 8 for _ in range(3))) for number in range(2_000)]
    made = measured(orders, weight=8.0)
    assert made.largest[0].items == made.counts.most == 3


def test_a_large_collection_is_known_by_a_sample_of_its_items() -> None:
    made = measured([("large", 100), ("small", 2)], weight=8.0)
    assert [collection.items for collection in made.largest] == [800, 2]
