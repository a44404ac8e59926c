from __future__ import annotations

from migrator.target.store import Sized, batches


def item(key: str, size: int = 10) -> Sized:
    return ((key,), {}, size)


def shapes(items: list[Sized]) -> list[int]:
    return [len(batch) for batch in batches(items)]


def test_25_items_at_most() -> None:
    assert shapes([item(str(number)) for number in range(51)]) == [25, 25, 1]
    assert shapes([]) == []


def test_16_megabytes_at_most() -> None:
    assert shapes([item(str(number), 6 * 1024 * 1024) for number in range(5)]) == [2, 2, 1]


def test_no_key_twice_and_the_later_one_later() -> None:
    items = [item("a"), item("b"), item("a"), item("c")]
    assert [[key for key, _, _ in batch] for batch in batches(items)] == [[("a",), ("b",)], [("a",), ("c",)]]


def test_a_limit_of_write_units_cuts_batches_but_not_items() -> None:
    items = [item("a", 1500), item("b", 1500), item("c", 100), item("d", 9000), item("e", 100)]
    assert [[key[0] for key, _, _ in batch] for batch in batches(items, 5)] == [["a", "b", "c"], ["d"], ["e"]]
