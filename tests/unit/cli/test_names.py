"""What a shell is offered while a command is typed: jobs, patterns, entities, and nothing where a file is wrong."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from migrator.main import cli
from migrator.mapping.model.journal import RunIdentity, RunKind
from tests.support_journal_file import journal_in_file

ROOT = Path(__file__).resolve().parents[3]


def offered(*words: str) -> list[str]:
    """What completes the last word."""
    completer = ShellComplete(cli, {}, "migrator", "_MIGRATOR_COMPLETE")
    return [item.value for item in completer.get_completions(list(words[:-1]), words[-1])]


@pytest.fixture(autouse=True)
def in_a_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("MIGRATOR_SOURCE_URL", raising=False)


def test_jobs_are_offered_and_other_files_are_not() -> None:
    assert "jobs/ecommerce.yaml" in offered("backfill", "")
    assert offered("backfill", "jobs/eco") == ["jobs/ecommerce.yaml"]
    assert not [name for name in offered("backfill", "") if name.startswith("mappings/")]


def test_any_file_is_offered_if_no_job_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    completer = ShellComplete(cli, {}, "migrator", "_MIGRATOR_COMPLETE")
    assert [item.type for item in completer.get_completions(["backfill"], "b")] == ["file"]


@pytest.mark.parametrize(
    "command", ["look --pattern", "cutover advance", "cutover ramp", "cutover rollback", "cutover status"]
)
def test_patterns_of_the_jobs_mapping_are_offered(command: str) -> None:
    name, *option = command.split(" --")
    words = [*name.split(), "jobs/ecommerce.yaml", *(f"--{one}" for one in option)]
    assert offered(*words, "get_order") == [
        "get_order",
        "get_orders_by_status",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "backfill jobs/ecommerce.yaml --entity",
        "backfill --limit 5 jobs/ecommerce.yaml --entity",
        "clean jobs/ecommerce.yaml --row --entity",
        "mapping try mappings/ecommerce.yaml --entity",
    ],
)
def test_entities_are_offered(line: str) -> None:
    assert offered(*line.split(), "us") == ["user"]


def test_run_completion_lists_runs_of_the_journal_newest_first(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    source = f"sqlite:///{tmp_path / 'shop.db'}"
    job.write_text(
        f"job: 1\nname: shop\nmapping: {ROOT / 'mappings' / 'ecommerce.yaml'}\nsource: {{url: '{source}'}}\n"
        f"target: {{endpoint: 'http://127.0.0.1:1', region: eu-central-1}}\njournal: sqlite:///{tmp_path / 'journal.db'}\n"
    )
    with closing(journal_in_file(tmp_path / "journal.db")) as journal:
        relays: list[RunKind] = ["relay"] * 8
        kinds: list[RunKind] = ["backfill", "verify", *relays, "verify"]
        for kind in kinds:
            run = journal.start_run(RunIdentity(kind, "shop", "table-1", "rev1"))
            journal.end_run(run, "done")
        journal.start_run(RunIdentity("backfill", "other", "table-2", "rev1"))
    completer = ShellComplete(cli, {}, "migrator", "_MIGRATOR_COMPLETE")
    runs = [
        (item.value, item.help)
        for item in completer.get_completions(["status", "--findings", str(job), "--run"], "1")
    ]
    assert runs == [("11", "verify"), ("10", "relay"), ("1", "backfill")]
    assert offered("status", "--findings", str(job), "--run", "2") == ["2"]


@pytest.mark.parametrize(
    "text", ["", "[", "job: 1", "job: 1\nmapping: none.yaml", "- 1", "job: 1\nmapping: [x]"]
)
def test_nothing_is_offered_if_a_file_is_wrong(text: str, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(text)
    assert offered("look", str(job), "--pattern", "") == []
    assert offered("backfill", str(job), "--entity", "") == []
    assert offered("status", "--findings", str(job), "--run", "") == []
    assert offered("look", str(tmp_path / "none.yaml"), "--pattern", "") == []
