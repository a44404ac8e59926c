from __future__ import annotations

import json

import pytest

from migrator import logs


def test_a_line_is_json_with_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(json=True)
    logs.get_logger("backfill").info("page_done", rows=500)
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["rows"], line["level"], line["room"]) == (
        "page_done",
        500,
        "info",
        "backfill",
    )
    assert line["timestamp"].endswith("Z")


def test_nothing_below_the_level(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(json=False, level="warning")
    logs.get_logger("backfill").info("page_done")
    assert capsys.readouterr().err == ""


def test_a_password_in_a_url_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(json=True)
    logs.get_logger("source").error("failed", url="postgresql://me:s3c@ret@host/shop")
    assert "s3c" not in capsys.readouterr().err
