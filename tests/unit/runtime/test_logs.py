from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from migrator.runtime import logs


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Later tests must not log into a stream of this one's that is closed by then."""
    yield
    structlog.reset_defaults()


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


def test_text_log_line_has_no_fields_of_its_origin(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(json=False)
    logs.get_logger("backfill").warning("page_failed", rows=500)
    assert capsys.readouterr().err.split()[1:] == ["[warning]", "page_failed", "rows=500"]


def test_service_without_setup_logs_only_warnings_to_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    structlog.reset_defaults()
    logger = logs.get_logger("instances")
    logger.info("instance_struck")
    logger.warning("table_cannot_be_asked", url="postgresql://me:s3cret@host/shop")
    said = capsys.readouterr()
    assert said.out == ""
    assert [json.loads(line)["event"] for line in said.err.splitlines()] == ["table_cannot_be_asked"]
    assert "s3cret" not in said.err


@pytest.mark.parametrize("stream", [None, "closed"])
def test_a_line_that_cannot_be_read_ends_nothing(monkeypatch: pytest.MonkeyPatch, stream: str | None) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed if stream else None)
    logs.configure(json=True)
    logs.get_logger("retry").warning("tried_again")


def test_lines_are_added_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for event in ("first", "second"):
        logs.configure(json=True, file=tmp_path / "log")
        logs.get_logger("relay").info(event)
    assert [json.loads(line)["event"] for line in (tmp_path / "log").read_text().splitlines()] == [
        "first",
        "second",
    ]
    assert capsys.readouterr().err == ""


def test_nothing_below_the_level(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(json=False, level="warning")
    logs.get_logger("backfill").info("page_done")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "field",
    [
        "postgresql://me:s3cret@host/shop",
        "postgresql://me:s3c@s3cret@host/shop",
        "postgresql://host/shop?sslmode=require&password=s3cret&x=1",
        "host=h password=s3cret user=me",
        "host=h password='s3 s3cret' user=me",
        ["postgresql://me:s3cret@host/shop"],
        {"source": {"url": "postgresql://me:s3cret@host/shop"}},
        ValueError("cannot reach postgresql://me:s3cret@host/shop"),
    ],
)
@pytest.mark.parametrize("as_json", [True, False])
def test_a_password_is_cut(capsys: pytest.CaptureFixture[str], field: object, *, as_json: bool) -> None:
    logs.configure(json=as_json)
    logs.get_logger("source").error("failed", field=field)
    line = capsys.readouterr().err
    assert "s3cret" not in line
    assert "***" in line


@pytest.mark.parametrize("as_json", [True, False])
def test_a_trace_shows_no_password_and_no_local_value(
    capsys: pytest.CaptureFixture[str], *, as_json: bool
) -> None:
    logs.configure(json=as_json)
    message = ":".join(["postgresql", "//me", "s3cret@host"])
    row = "-".join(["a", "customer's", "name"])
    try:
        int(message)
    except ValueError:
        logs.get_logger("source").exception("failed")
    trace = capsys.readouterr().err
    assert "ValueError" in trace
    assert "s3cret" not in trace
    assert row not in trace


def test_plain_values_stay_what_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(json=True)
    logs.get_logger("source").info("done", rows=5, ratio=0.5, ok=True, none=None, names=["a", 1])
    line = json.loads(capsys.readouterr().err)
    assert [line[name] for name in ("rows", "ratio", "ok", "none", "names")] == [5, 0.5, True, None, ["a", 1]]
