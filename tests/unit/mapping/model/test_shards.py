"""Which shards of a stream a reader is to hold, and how far they are behind."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from migrator.mapping.model.live import Checkpoint, Checkpoints, allotted
from migrator.runtime.values import replace

NOW = 1000.0


def shard(name: str, parent: str = "", owner: str = "", passed_at: float = 0.0) -> Checkpoint:
    return Checkpoint(name, parent, "", passed_at, owner=owner, leased_until=NOW + 1 if owner else 0.0)


def names(shards: list[Checkpoint], owner: str = "one", readers: int = 1) -> list[str]:
    return [one.shard for one in allotted(shards, owner, readers, NOW)]


def test_reader_keeps_its_shards_before_it_takes_older_ones() -> None:
    shards = [shard("new", owner="one", passed_at=900), shard("old", passed_at=1), shard("b", passed_at=500)]
    assert names(shards, readers=2) == ["new", "old"]
    assert names(shards, readers=3) == ["new"]


def test_what_is_longest_behind_is_taken_first() -> None:
    shards = [shard("c", passed_at=3), shard("a", passed_at=2), shard("b", passed_at=1)]
    assert names(shards) == ["b", "a", "c"]


def test_a_lease_of_another_reader_holds_until_it_ends() -> None:
    held = shard("a", owner="two")
    assert names([held]) == []
    assert names([replace(held, leased_until=NOW)]) == ["a"]


def test_child_shard_waits_for_its_parent_unless_that_is_gone() -> None:
    shards = [shard("a", "gone"), shard("b", "a"), shard("c", "b")]
    assert names(shards) == ["a"]
    assert names([replace(shards[0], is_finished=True), *shards[1:]]) == ["b"]


@given(st.lists(st.sampled_from(["", "one", "two", "three"]), max_size=12), st.integers(1, 5))
def test_equal_parts_take_all_shards_and_none_twice(owners: list[str], readers: int) -> None:
    """When each of the readers has had its turn as often as there are readers."""
    named = ["one", "two", "three", "four", "five"][:readers]
    shards = {f"s{number}": shard(f"s{number}", owner=owner) for number, owner in enumerate(owners)}
    # Who is no reader any more has no lease either.
    shards = {
        name: known if known.owner in named else replace(known, leased_until=0.0)
        for name, known in shards.items()
    }
    for owner in named * 2:
        held = {one.shard for one in allotted(shards.values(), owner, readers, NOW)}
        shards = {
            name: shard(name, owner=owner)
            if name in held
            else (replace(known, owner="") if known.owner == owner else known)
            for name, known in shards.items()
        }
    counts = [sum(known.owner == owner for known in shards.values()) for owner in named]
    assert sum(counts) == len(shards)
    assert max(counts, default=0) <= -(-len(shards) // readers)


def test_lag_covers_unfinished_shards_and_is_never_negative() -> None:
    shards = (
        shard("a", passed_at=990.0),
        shard("b", passed_at=1500.0),
        replace(shard("c"), is_finished=True),
    )
    assert Checkpoints(NOW, shards).lags_s() == {"a": 10.0, "b": 0.0}
