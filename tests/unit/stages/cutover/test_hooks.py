"""Hooks: the event on standard input, bounded in time, and never a reason to fail."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from migrator.cli.runs import RunEnd
from migrator.journal.runs import SqlJournal
from migrator.model.errors import Interrupted, StoppedError
from migrator.model.journal import RunIdentity
from migrator.settings.job import Hook
from migrator.stages.cutover.watch import tell

COPY = "import sys; open(sys.argv[1], 'wb').write(sys.stdin.buffer.read())"


def test_a_hook_gets_the_event_as_json(tmp_path: Path) -> None:
    out = tmp_path / "an event; $HOME"
    hook = Hook(on=("rolled_back", "lag_high"), command=(sys.executable, "-c", COPY, str(out)))
    tell([hook], "run_failed", "shop", reason="other")
    assert not out.exists()
    tell([hook], "rolled_back", "shop", pattern="orders", reason="10 % “differ”")
    event = json.loads(out.read_text(encoding="utf-8"))
    assert event.pop("at").endswith("+00:00")
    assert event == {"event": "rolled_back", "job": "shop", "pattern": "orders", "reason": "10 % “differ”"}


def test_a_text_is_for_the_shell(tmp_path: Path) -> None:
    out = tmp_path / "out"
    tell([Hook(on=("lag_high",), command=f"tr a-z A-Z | cat > {out}")], "lag_high", "shop")
    assert '"EVENT": "LAG_HIGH"' in out.read_text()


def test_the_words_of_a_list_never_meet_a_shell(tmp_path: Path) -> None:
    out = tmp_path / "out"
    tell([Hook(on=("lag_high",), command=("echo", f"; touch {out}", f"$(touch {out})"))], "lag_high", "shop")
    assert not out.exists()


def test_a_run_that_fails_is_told_and_one_that_was_stopped_is_not(tmp_path: Path) -> None:
    journal = SqlJournal.in_memory()
    run = journal.start_run(RunIdentity("verify", "shop", "table", "rev"))
    out = tmp_path / "out"
    hooks = [Hook(on=("run_failed",), command=f"cat > {out}")]
    with suppress(Interrupted), RunEnd(journal, run, hooks):
        raise Interrupted("stopped")
    assert not out.exists()
    with pytest.raises(StoppedError), RunEnd(journal, run, hooks):
        raise StoppedError("DynamoDB gave up")
    event = json.loads(out.read_text())
    assert (event["event"], event["job"], event["run"], event["kind"]) == (
        "run_failed",
        "shop",
        run.id,
        "verify",
    )
    assert event["reason"] == "DynamoDB gave up"
    assert journal.runs("shop")[0].state == "failed"
    journal.close()


FAILING = {
    "a program that is not there": (("/no/such/program-s3cret",), "cannot be started (No such file"),
    "a zero byte": (("a\0b-s3cret",), "cannot be started"),
    "a failure": ("exit 3 # s3cret", "ended with exit code 3"),
    "one that reads nothing": (("true",), ""),
    "one that hangs": ("sleep 300 & sleep 300 # s3cret", "took longer than 0.3 s and was killed"),
}


@pytest.mark.parametrize("what", FAILING)
def test_a_hook_that_fails_is_logged_without_its_words_and_stops_no_other(what: str, tmp_path: Path) -> None:
    command, said = FAILING[what]
    out = tmp_path / "out"
    hooks = [
        Hook(on=("lag_high",), command=command, wait=0.3),
        Hook(on=("lag_high",), command=f"cat > {out}"),
    ]
    begun = time.monotonic()
    with capture_logs() as logs:
        tell(hooks, "lag_high", "shop", padding="x" * 200_000)
    assert time.monotonic() - begun < 120
    assert out.exists()
    assert "s3cret" not in str(logs)
    assert [one["hook"] for one in logs] == ([0] if said else [])
    assert said in str(logs)
