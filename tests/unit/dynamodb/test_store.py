from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from migrator.dynamodb.store import Sized, batches
from migrator.mapping.items.wire import write_units
from migrator.mapping.model.table import BATCH_WRITE_BYTES, BATCH_WRITE_ITEMS


def item(key: str, size: int = 10) -> Sized:
    return ((key,), {}, size)


def shapes(items: list[Sized]) -> list[int]:
    return [len(batch) for batch in batches(items)]


def test_16_megabytes_at_most() -> None:
    assert shapes([item(str(number), 6 * 1024 * 1024) for number in range(5)]) == [2, 2, 1]


def test_no_key_twice_and_the_later_one_later() -> None:
    items = [item("a"), item("b"), item("a"), item("c")]
    assert [[key for key, _, _ in batch] for batch in batches(items)] == [[("a",), ("b",)], [("a",), ("c",)]]


def test_a_limit_of_write_units_cuts_batches_but_not_items() -> None:
    items = [item("a", 1500), item("b", 1500), item("c", 100), item("d", 9000), item("e", 100)]
    assert [[key[0] for key, _, _ in batch] for batch in batches(items, 5)] == [["a", "b", "c"], ["d"], ["e"]]


def is_a_batch(items: Sequence[Sized], units_at_most: float | None) -> bool:
    units = sum(write_units(size) for _, _, size in items)
    return (
        len({key for key, _, _ in items}) == len(items) <= BATCH_WRITE_ITEMS
        and sum(size for _, _, size in items) <= BATCH_WRITE_BYTES
        and (units_at_most is None or units <= units_at_most)
    )


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.sampled_from([1, 900, 1500, 400_000, 6 * 1024 * 1024])), max_size=120
    ),
    st.none() | st.integers(1, 60),
)
def test_each_batch_is_as_large_as_it_may_be(
    made: list[tuple[int, int]], units_at_most: float | None
) -> None:
    items = [item(str(key), size) for key, size in made]
    cut = list(batches(items, units_at_most))
    assert [one for batch in cut for one in batch] == items
    for number, batch in enumerate(cut):
        assert len(batch) == 1 or is_a_batch(batch, units_at_most)
        if number + 1 < len(cut):
            assert not is_a_batch([*batch, cut[number + 1][0]], units_at_most)
