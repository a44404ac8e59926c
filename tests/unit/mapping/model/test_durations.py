"""One way to say how long, in jobs and on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from migrator.mapping.model.durations import (
    ADVICE,
    LONGEST_S,
    age_text,
    limit_text,
    minute,
    moment,
    seconds_of,
)
from migrator.runtime.errors import MappingError
from migrator.settings.job import Duration, Job, Settings, load_job
from tests import pins


def test_durations_are_seconds() -> None:
    assert [
        seconds_of(text) for text in ("90", "30s", "15m", "1.5h", "7 d", "5 min", " 0 ", "1e2", ".5s")
    ] == [*(90, 30, 900, 5400, 604_800, 300, 0, 100, 0.5)]


@pytest.mark.parametrize("text", ["", "soon", "-5", "5 weeks", "5M", "1h30m", "inf", "nan", "s", "1_0", "٣s"])
def test_invalid_duration_is_reported_with_the_syntax(text: str) -> None:
    with pins.refused(ValueError) as caught:
        seconds_of(text)
    assert str(caught.value) == ADVICE


def test_no_duration_is_longer_than_a_database_holds() -> None:
    assert seconds_of("36525d") == LONGEST_S
    for text in ("36526d", "9" * 400):
        with pins.refused(ValueError):
            seconds_of(text)


def job(folder: Path, more: str) -> Job:
    path = folder / "shop.yaml"
    path.write_text(f"job: 1\nmapping: m.yaml\nsource: {{url: 'sqlite:///a.db'}}\n{more}\n")
    return load_job(path, {"LIFE": "2m"})


def test_settings_ending_in_s_accept_numbers_and_durations(tmp_path: Path) -> None:
    text = "tuning: {give_up_after_s: 2h, backoff_cap_s: 30, silent_s: 20s, request_life_s: '${LIFE}', lease_s: '90'}"
    tuning = job(tmp_path, text).tuning
    assert (tuning.give_up_after_s, tuning.backoff_cap_s, tuning.silent_s) == (7200, 30, 20)
    assert (tuning.request_life_s, tuning.lease_s) == (120, 90)
    reads = job(tmp_path, "reads: {cursor_life_s: 1d, shadow: {deadline_s: 1.5s, settle_s: 1m}}").reads
    assert (reads.cursor_life_s, reads.shadow.deadline_s, reads.shadow.settle_s) == (86_400, 1.5, 60)
    cutover = job(tmp_path, "cutover: {lag_max_s: 5m, watch: {every_s: 1m}}").cutover
    assert (cutover.lag_max_s, cutover.watch.every_s) == (300, 60)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tuning: {silent_s: soon}", f"shop.yaml:4: tuning.silent_s: {ADVICE}"),
        ("reads: {shadow: {settle_s: 5 weeks}}", f"shop.yaml:4: reads.shadow.settle_s: {ADVICE}"),
        ("tuning: {lease_s: true}", "shop.yaml:4: tuning.lease_s: write a number, not true or false"),
        ("tuning: {lease_s: 2d}", "tuning.lease_s: write a value of at most 3600 here"),
    ],
)
def test_what_is_wrong_is_reported_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(MappingError) as caught:
        job(tmp_path, text)
    assert said in str(caught.value)


def test_every_setting_parses_seconds_in_the_same_way() -> None:
    parser = Duration.__metadata__[0]  # type: ignore[attr-defined]
    plain = [
        f"{part.__name__}.{name}"
        for part in Settings.__subclasses__()
        for name, field in part.model_fields.items()
        if name.endswith("_s") and not name.endswith("per_s") and parser not in _metadata(field)
    ]
    assert plain == []


def _metadata(field: object) -> list[object]:
    """What stands beside the type, within an optional one, too."""
    found = list(field.metadata)  # type: ignore[attr-defined]
    for part in get_args(field.annotation):  # type: ignore[attr-defined]
        found += list(getattr(part, "__metadata__", ()))
    return found


def test_moment_is_utc_in_any_time_zone_of_the_machine() -> None:
    assert moment(1_772_373_909.7) == "2026-03-01 14:05:09+00:00"
    assert minute(1_772_373_909.7) == "2026-03-01 14:05 UTC"


@pytest.mark.parametrize(
    ("seconds", "age", "limit"),
    [
        (0.4, "0 s", "0.4 s"),
        (90, "1 min", "90 s"),
        (120, "2 min", "2 min"),
        (5_400, "1 h", "90 min"),
        (86_400, "1 d", "1 d"),
        (129_600, "1 d", "36 h"),
    ],
)
def test_an_age_is_rounded_down_and_a_limit_is_exact(seconds: float, age: str, limit: str) -> None:
    assert (age_text(seconds), limit_text(seconds)) == (age, limit)
