"""Records of streams as marks: what a relay makes of them over splits, expired places, kills and long pauses."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any

import pytest

from migrator.runtime.errors import LostRecordsError, SettingsError, StoppedError
from migrator.source.dynamodb.marks import READER_LEASE_S, UNSEEN_S
from tests import pins
from tests.unit.source.dynamodb.capture.world import Documents
from tests.unit.stages.core.stream_world import Killed, Steps

HOUR_S = 3600.0
FAR = datetime(2099, 1, 2, 3, 4, 5)


def begun(**options: Any) -> Documents:
    documents = Documents(**options)
    documents.install()
    return documents


def test_written_rows_become_items_and_deleted_ones_disappear() -> None:
    documents = begun()
    documents.write("users", 1, name="Ann", email="a@x")
    documents.write("orders", 7, user_id=1, expires_at=FAR)
    relay, _ = documents.relay()
    documents.work(relay)
    assert {key[1] for key in documents.live()} == {"META", "EMAIL", "ORDER#000007"}
    documents.write("users", 1, email="b@x")
    documents.write("orders", 7)
    documents.work(relay)
    assert documents.live() == documents.expected()
    assert ("EMAIL#a@x", "EMAIL") not in documents.live()


def test_a_parent_that_is_renamed_is_followed_by_its_children() -> None:
    documents = begun()
    documents.write("users", 1, name="Ann")
    for order in range(5):
        documents.write("orders", order, user_id=1)
    relay, _ = documents.relay()
    documents.work(relay)
    documents.write("users", 1, name="Eve")
    documents.work(relay)
    assert documents.live() == documents.expected()
    assert {item["name"] for item in documents.live().values()} == {"Eve"}


def test_record_without_any_item_leaves_no_mark() -> None:
    documents = begun()
    documents.write("users", 1, name="Ann")
    documents.fakes["users"].put({"id": 1, "name": "Ann", "seen": 5})
    relay, marks = documents.relay()
    assert documents.work(relay) == 1
    documents.fakes["users"].put({"id": 1, "name": "Ann", "seen": 6})
    documents.work(relay)
    assert marks.state().waiting == 0


def test_a_value_of_another_type_than_declared_links_to_no_row() -> None:
    documents = begun()
    documents.write("users", 1, name="Ann")
    documents.fakes["orders"].put({"id": 7, "user_id": "one"})
    documents.fakes["orders"].put({"id": 7, "user_id": True})
    relay, _ = documents.relay()
    assert documents.work(relay) == 3, "that it changed is a mark; which rows it names is nothing of it"
    assert documents.marks().look(0, 10) == []


def test_a_shard_that_splits_and_places_that_expire_lose_nothing() -> None:
    documents = begun()
    relay, _ = documents.relay()
    for number in range(6):
        for key in range(5):
            documents.write("users", key, name=f"name {number}", email=f"{number}.{key}@x")
            documents.write("orders", key, user_id=(key + number) % 5)
        if number % 2:
            documents.fakes["users"].split(number)
            documents.fakes["orders"].roll()
        with suppress(StoppedError):
            relay.once()
        documents.pass_by(16 * 60)
    documents.drain()
    assert documents.live() == documents.expected()


def test_table_idle_for_days_under_a_relay_is_not_a_loss() -> None:
    documents = begun()
    documents.write("users", 1, name="Ann")
    relay, _ = documents.relay()
    for _ in range(60):
        with suppress(StoppedError):
            relay.once()
        documents.pass_by(HOUR_S)
    documents.write("users", 1, name="Eve")
    documents.drain()
    assert documents.live() == documents.expected()


def test_a_pause_of_22_hours_is_no_loss() -> None:
    documents = begun()
    documents.write("users", 1, name="Ann")
    documents.work(documents.relay()[0])
    documents.write("users", 1, name="Eve")
    documents.pass_by(22 * HOUR_S)
    documents.drain()
    assert documents.live() == documents.expected()


def test_pause_of_25_hours_stops_the_relay_with_the_only_fix() -> None:
    documents = begun()
    documents.write("users", 1, name="Ann")
    relay, marks = documents.relay()
    documents.work(relay)
    marks.close()
    documents.write("users", 1, name="Eve")
    documents.pass_by(25 * HOUR_S)
    for _ in range(3):
        relay, marks = documents.relay()
        with pins.refused(LostRecordsError):
            relay.once()
        marks.close()
    state = documents.marks().state()
    assert (state.waiting, state.oldest_age_s > 24 * HOUR_S) == (2, True)


def test_trimmed_checkpoint_stops_relay_despite_newer_records() -> None:
    documents = begun()
    relay, marks = documents.relay()
    documents.write("users", 1, name="Ann")
    documents.work(relay)
    marks.close()
    documents.write("users", 1, name="Bob")
    documents.pass_by(23.5 * HOUR_S)
    documents.write("users", 2, name="Eve")
    documents.pass_by(1.5 * HOUR_S)
    with pins.refused(LostRecordsError):
        documents.relay()[0].once()


@pytest.mark.parametrize(
    ("happens", "says"),
    [
        ("switch_off", "a stream that is switched off"),
        ("create_anew", "another stream than the one that was begun with"),
        ("keys only", "has the view KEYS_ONLY, and NEW_AND_OLD_IMAGES is needed"),
    ],
)
def test_stream_that_no_longer_has_all_changes_stops_the_relay(happens: str, says: str) -> None:
    documents = begun()
    relay, _ = documents.relay()
    documents.write("orders", 1, user_id=1)
    documents.work(relay)
    if happens == "keys only":
        documents.fakes["orders"].view = "KEYS_ONLY"
    else:
        getattr(documents.fakes["orders"], happens)()
    documents.pass_by(11)
    with pins.refused(SettingsError, says=says):
        relay.once()


def test_a_table_added_later_is_reported() -> None:
    with pins.refused(SettingsError):
        Documents().relay()[0].once()


def test_a_relay_killed_at_any_step_loses_nothing() -> None:
    kills, steps_taken = 0, 0
    for left in range(1, 120):
        documents = begun()
        steps = Steps(left)
        try:
            relay, _ = documents.relay(steps)
            documents.write("users", 1, name="Ann", email="a@x")
            documents.write("orders", 7, user_id=1)
            relay.once()
            documents.write("users", 1, name="Eve", email="b@x")
            documents.fakes["users"].split()
            documents.write("orders", 7, user_id=2)
            for _ in range(3):
                relay.once()
            documents.write("users", 1)
            documents.work(relay)
        except Killed:
            kills += 1
        steps_taken = steps.taken
        documents.drain()
        assert documents.live() == documents.expected(), left
    assert kills > 60, (kills, steps_taken)


def test_two_relays_share_the_shards_and_the_marks() -> None:
    documents = begun(page_records=3)
    documents.fakes["users"].split()
    (one, _), (two, _) = documents.relay(), documents.relay()
    for number in range(40):
        documents.write("users", number, name=f"n{number}")
        (one if number % 2 else two).once()
        documents.pass_by(3)
    for relay in (one, two):
        documents.work(relay)
    documents.pass_by(READER_LEASE_S)
    for relay in (one, two):
        relay.marks.from_the_first()
        documents.work(relay)
    assert documents.live() == documents.expected()


# ── what is counted, and what is seen ──


def test_records_not_yet_copied_count_as_waiting() -> None:
    documents = begun()
    documents.write("users", 1, name="Ann")
    documents.pass_by(600)
    state = documents.marks().state()
    assert state.waiting == 2, "a shard of each table, of which nothing is known"
    assert state.oldest_age_s >= 600
    relay, marks = documents.relay()
    documents.work(relay)
    marks.close()
    documents.pass_by(UNSEEN_S / 2)
    assert documents.marks().state().waiting == 0


def test_a_count_is_complete_when_all_was_requested() -> None:
    documents = begun()
    relay, marks = documents.relay()
    documents.work(relay)
    documents.write("users", 1, name="Ann")
    assert marks.state().waiting == 0, "it was read a moment ago"
    marks.from_the_first()
    assert marks.state().waiting == 1


def test_who_looks_at_marks_sees_those_that_only_the_stream_has() -> None:
    documents = begun()
    documents.write("users", 1, name="Ann")
    (mark,) = documents.marks().look(0, 10)
    assert (mark.table, mark.before, mark.after) == ("users", None, {"id": 1, "email": None})


def test_drain_waits_for_records_of_another_reader() -> None:
    documents = begun()
    dead, _ = documents.relay()
    dead.once()
    documents.write("users", 1, name="Ann")
    started = documents.now
    relay, marks = documents.relay()
    marks.from_the_first()
    assert relay.once().finished == 1
    assert documents.now - started >= READER_LEASE_S / 2, "its lease had to end"


def test_change_is_checked_again_if_an_index_finds_its_rows() -> None:
    documents = begun(again_after_s=60.0)
    documents.write("users", 1, name="Ann")
    relay, marks = documents.relay()
    assert documents.work(relay) == 1
    assert (marks.state().waiting, marks.state().unripe) == (0, 1)
    for _ in range(6):
        documents.pass_by(10)
        worked = relay.once()
    assert worked.finished == 1
    assert max(age_s for _, age_s in worked.changes) < 20, "its age is counted from when its time came"


def test_an_image_that_is_none_is_an_empty_one() -> None:
    images = begun().images
    for text in (
        "",
        "garbage",
        "[]",
        '{"item": 5, "columns": ["id"]}',
        '{"item": {"id": {"X": 1}}, "columns": ["id"]}',
    ):
        assert images.read("users", text) == {}
    assert images.read("of another mapping", '{"item": {}, "columns": []}') == {}
