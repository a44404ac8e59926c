from __future__ import annotations

import pytest

from migrator.source.reflect import clashes, snake_case, written_names
from tests import pins


@pytest.mark.parametrize(
    ("real", "written"),
    [
        ("TrackId", "track_id"),
        ("HTTPServer", "http_server"),
        ("already_snake", "already_snake"),
        ("Order Details", "order_details"),
        ("Track_Id", "track_id"),
        ("orderID", "order_id"),
        ("ID", "id"),
        ("line2Total", "line2_total"),
        ("Unit Price ($)", "unit_price"),
        ("ÜberTrack", "über_track"),
        ("_private", "_private"),
        ("$", "$"),
    ],
)
def test_snake_case_splits_words_and_lowers_them(real: str, written: str) -> None:
    assert snake_case(real) == written
    assert snake_case(written) == written


def test_exact_names_are_kept() -> None:
    assert written_names(["TrackId", "Order Details"], "exact") == {
        "TrackId": "TrackId",
        "Order Details": "Order Details",
    }


def test_two_names_written_alike_are_a_clash_that_names_both() -> None:
    written = written_names(["TrackId", "track_id", "Name"], "snake_case")
    assert clashes(written) == [pins.text()]
    assert clashes(written_names(["TrackId", "track_id"], "exact")) == []
