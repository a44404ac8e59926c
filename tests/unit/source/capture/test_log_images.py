"""Marks of changes in the log: which columns their images hold."""

from __future__ import annotations

import json

from migrator.source.capture.log.changes import UNCHANGED, MarkedTable, RelationMarks, Row, RowChange
from migrator.source.capture.log.postgresql.protocol import LogColumn, Relation
from migrator.source.capture.log.postgresql.slot import slot_of

FULL = (LogColumn("id", 23, True), LogColumn("owner", 23, True), LogColumn("name", 25, True))
KEY = (LogColumn("id", 23, True), LogColumn("owner", 23, False), LogColumn("name", 25, False))


def marks(columns: tuple[LogColumn, ...], watched: frozenset[str] | None = None) -> RelationMarks:
    table = MarkedTable("public.pet", (("id", "id"), ("owner_id", "owner")), watched, {})
    return RelationMarks(table, Relation(1, "public", "pet", "f", columns))


def images(made: RelationMarks, change: RowChange) -> tuple[object, object] | None:
    kept = made.kept(change, 1.0)
    return None if kept is None else (_read(kept.before), _read(kept.after))


def _read(text: str | None) -> object:
    return None if text is None else json.loads(text)


def update(old: Row | None, new: Row, *, is_key: bool = False) -> RowChange:
    return RowChange("update", 1, old, new, is_key)


def test_an_image_has_the_form_that_triggers_write() -> None:
    found = images(marks(FULL), update((b"1", b"5", b"x"), (b"1", None, b"x")))
    assert found == ({"id": "23:1", "owner_id": "23:5"}, {"id": "23:1", "owner_id": None})


def test_without_an_image_before_the_identity_is_as_it_was() -> None:
    assert images(marks(KEY), update(None, (b"1", b"5", b"x"))) == (
        {"id": "23:1"},
        {"id": "23:1", "owner_id": "23:5"},
    )


def test_of_a_key_alone_nothing_else_is_known() -> None:
    assert images(marks(KEY), RowChange("delete", 1, (b"1", None, None), None, True)) == (
        {"id": "23:1"},
        None,
    )
    left_out = update((b"1", None, None), (b"2", UNCHANGED, b"x"), is_key=True)
    assert images(marks(KEY), left_out) == (None, None)


def test_a_value_that_is_left_out_stands_in_the_image_before() -> None:
    found = images(marks(FULL), update((b"1", b"5", b"x"), (b"1", UNCHANGED, b"y")))
    assert found == ({"id": "23:1", "owner_id": "23:5"},) * 2


def test_a_value_that_stands_nowhere_marks_the_whole_table() -> None:
    assert images(marks(FULL), update(None, (b"1", UNCHANGED, b"x"))) == (None, None)


def test_columns_that_nothing_is_made_of_leave_no_mark() -> None:
    watching = marks(FULL, frozenset({"owner"}))
    assert images(watching, update((b"1", b"5", b"x"), (b"1", UNCHANGED, b"y"))) is None
    assert images(watching, update((b"1", b"5", b"x"), (b"1", b"6", b"x"))) is not None
    # A column that the log leaves out may have changed.
    assert (
        images(marks(FULL, frozenset({"made"})), update((b"1", b"5", b"x"), (b"1", b"5", b"y"))) is not None
    )


def test_names_of_slots() -> None:
    assert slot_of("shop_2") == "migrator_shop_2"
    assert slot_of("Shop-2").startswith("migrator__hop_2_")
    assert slot_of("shop-2") != slot_of("shop.2")
    assert len(slot_of("x" * 200)) == 63
