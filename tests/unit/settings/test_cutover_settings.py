from __future__ import annotations

from pathlib import Path

import pytest

from migrator.model.errors import MappingError
from migrator.settings.job import CutoverSettings, Hook, WatchSettings, load_job
from tests import pins

JOB = "job: 1\nmapping: m.yaml\nsource: sqlite:///shop.db\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "shop.yaml"
    path.write_text(JOB + text)
    return path


def test_a_job_without_a_word_of_it_has_the_limits_of_production(tmp_path: Path) -> None:
    job = load_job(write(tmp_path, ""), {})
    assert job.cutover == CutoverSettings()
    assert (job.cutover.comparisons_min, job.cutover.verify_max_age_s) == (1000, 86_400)
    assert job.hooks == ()


def test_limits_and_hooks_are_read_with_their_units(tmp_path: Path) -> None:
    text = """
cutover:
  verify_max_age: 6h
  evidence_max_age: 90
  kinds_min: 1
  quiet: 1m
  watch: {lately: 5 min, mismatch_max: 0.02}
hooks:
  - {on: [rolled_back, lag_high], command: [notify, "--to=${TEAM}"], wait: 3s}
  - {on: [run_failed], command: "logger -t migrator"}
"""
    job = load_job(write(tmp_path, text), {"TEAM": "s3cret"})
    watch = WatchSettings(lately=300, mismatch_max=0.02)
    assert job.cutover == CutoverSettings(
        verify_max_age=21_600, evidence_max_age=90, kinds_min=1, quiet=60, watch=watch
    )
    assert job.hooks == (
        Hook(on=("rolled_back", "lag_high"), command=("notify", "--to=s3cret"), wait=3),
        Hook(on=("run_failed",), command="logger -t migrator"),
    )
    assert "s3cret" not in repr(job)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("cutover: {verify_max_age: soon}", 4),
        ("cutover: {verify_max_age: true}", 4),
        ("cutover: {verify_max_age: 0s}", 4),
        ("cutover: {mismatch_max: 0}", 4),
        ("cutover: {error_max: 1}", 4),
        ("cutover: {kinds_min: 2}", 4),
        ("cutover: {comparison_min: 5}", 4),
        ("cutover:\n  watch: {evry_s: 5}", 5),
        ("hooks:\n  - {on: [rolled_bak], command: [a]}", 5),
        ("hooks:\n  - {on: [], command: [a]}", 5),
        ("hooks:\n  - {on: [lag_high], command: []}", 5),
        ("hooks:\n  - {on: [lag_high], command: ' '}", 5),
        ("hooks:\n  - {on: [lag_high]}", 5),
    ],
    ids=[
        "duration-such",
        "number-true",
        "greater",
        "greater-mismatch",
        "less",
        "less-equal",
        "you-mean",
        "did-you-mean",
        "rolled-back",
        "least",
        "write-program",
        "write-program-2",
        "command",
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(MappingError) as caught:
        load_job(write(tmp_path, text), {})
    said = str(caught.value)
    assert f"shop.yaml:{line}: " in said
    assert pins.said(said)
