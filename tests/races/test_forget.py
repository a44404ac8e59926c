"""Rows that are forgotten while others are still at work on what they read of them."""

from __future__ import annotations

from migrator.mapping.model.results import Forgotten
from migrator.stages.session.forget import Forget
from tests.races.harness import Race
from tests.support_fence import no_fence

ROWS = (
    "INSERT INTO users (id, name, email) VALUES (1, 'Ann', 'ann@x')",
    "INSERT INTO orders (id, user_id, total) VALUES (5, 1, 10)",
)
TAG = "INSERT INTO tags (id, order_id, label) VALUES (7, 5, 'red')"
LATER_S = 3600.0


def stage(race: Race, entity: str, key: str, later_s: float = 0.0) -> Forget:
    """Forgetting that row, as if so much time had passed since it was buried."""
    made = Forget(race.session, [(entity, key)], no_fence, race.shop.live)
    made.wait = lambda wait_s: None
    now_s = made.now_s
    made.now_s = lambda: now_s() + later_s
    return made


def forget(race: Race, entity: str, key: str, later_s: float = 0.0) -> Forgotten:
    forgetting = stage(race, entity, key, later_s)
    traces = forgetting.look()
    assert (traces.is_there, traces.waiting, traces.items) == (False, 0, 0)
    return forgetting.forget(traces)


def test_a_slow_page_that_read_the_row_finds_that_it_is_late(race: Race) -> None:
    """Nothing of the row was ever written, so no tombstone refuses the page's put."""
    race.sql(*ROWS)
    race.fill()
    race.sql(TAG)
    slow = race.heartbeats.enter("conditional")
    done: list[Forgotten] = []

    def meanwhile() -> None:
        race.sql("DELETE FROM tags")
        race.work()
        done.append(forget(race, "tag", "[7]"))

    race.copy("tag", after_read=meanwhile)
    assert done[0].is_late
    assert not [key for key in race.live() if key[0].startswith("TAGS")]
    race.heartbeats.leave(slow, clean=True)
    assert forget(race, "tag", "[7]", LATER_S).is_all
    race.comes_to_rest()


def test_relay_that_begins_newer_work_does_not_delay_a_forget(race: Race) -> None:
    race.sql(*ROWS, TAG)
    race.fill()
    relay = race.heartbeats.enter("relay")
    race.sql("DELETE FROM tags")
    race.work()
    made = stage(race, "tag", "[7]")

    def beat(wait_s: float) -> None:
        relay.beat(begins=True)

    made.wait = beat
    assert not made.forget(made.look()).is_late
    race.heartbeats.leave(relay, clean=True)


def test_row_returning_while_it_is_forgotten_stays_remembered(race: Race) -> None:
    """It returns, is written, and moves on: only what is remembered of it tells where it was in between."""
    race.sql(*ROWS, TAG)
    race.fill()
    race.sql("DELETE FROM tags")
    race.work()
    forgetting = stage(race, "tag", "[7]", LATER_S)
    traces = forgetting.look()
    race.sql(TAG.replace("red", "blue"))
    assert forgetting.forget(traces).is_late
    race.work()
    assert not forgetting.forget(traces).is_all
    race.sql("UPDATE tags SET label = 'green'")
    race.comes_to_rest()
    assert [key for key in race.live() if key[0].startswith("TAGS")] == [("TAGS#1", "green#7")]


def test_row_deleted_again_while_forgotten_stays_remembered(race: Race) -> None:
    race.sql(*ROWS, TAG)
    race.fill()
    race.sql("DELETE FROM tags")
    race.work()
    forgetting = stage(race, "tag", "[7]", LATER_S)
    traces = forgetting.look()
    race.sql(TAG.replace("red", "blue"))
    race.work()
    race.sql("DELETE FROM tags")
    race.work()
    assert forgetting.forget(traces).gone["remembered keys"] == 0
    assert forgetting.look().kept["remembered keys"] > 0
    race.comes_to_rest()


def test_a_row_that_returns_is_written_again(race: Race) -> None:
    race.sql(*ROWS, TAG)
    race.fill()
    race.sql("DELETE FROM tags")
    race.work()
    assert forget(race, "tag", "[7]", LATER_S).is_all
    race.sql(TAG.replace("red", "blue"))
    race.comes_to_rest()
    assert ("TAGS#1", "blue#7") in race.live()
