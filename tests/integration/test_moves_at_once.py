"""Two moves of one pattern at once: the phase that was shown is part of what is asked for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import pins
from tests.journeys.command import Project
from tests.journeys.cutover import OTHER, PATTERN, cutover_shop, force, phase

pytestmark = pytest.mark.slow

MEANWHILE = """\
import os, pathlib, subprocess, sys
if not pathlib.Path("done").exists():
    pathlib.Path("done").touch()
    words = ["cutover", "advance", "twin.yaml", "{pattern}", "--override", "drill"]
    subprocess.run([sys.executable, "-m", "migrator", *words], check=True, stdout=sys.stderr)
print(os.environ["MIGRATOR_SOURCE_URL"])
"""


@pytest.fixture
def bare(tmp_path: Path, dynamodb_url: str) -> Project:
    """Neither a table nor marks: what needs no evidence, or overrides it, does without."""
    return cutover_shop(tmp_path, dynamodb_url)


def test_of_two_at_once_one_moves(bare: Project) -> None:
    """The other one is done while the first asks where its source is: after it began, before it gathers evidence."""
    # A journal that knows the job asks the source for nothing more before phases are read.
    force(bare, "advance", str(bare.job), OTHER)
    text = bare.job.read_text().replace("job: 1\n", "job: 1\nname: shop\n")
    (bare.folder / "twin.yaml").write_text(text)
    (bare.folder / "meanwhile.py").write_text(MEANWHILE.replace("{pattern}", PATTERN))
    command = f"source: {{command: ['{sys.executable}', meanwhile.py]}}"
    bare.job.write_text("\n".join(command if "source:" in line else line for line in text.splitlines()))
    ended = bare.run("cutover", "advance", str(bare.job), PATTERN, "--override", "drill")
    assert (bare.folder / "done").exists()
    assert (ended.code, phase(bare)) == (1, "shadow"), ended.err


@pytest.mark.parametrize(
    ("words", "shown", "stays"),
    [
        (["advance"], "off", "shadow"),
        (["ramp", "5"], "off", "shadow"),
        (["ramp", "5"], "live", "ramp 20 %"),
        (["rollback"], "live", "shadow"),
        (["rollback"], "ramp", "live"),
    ],
)
def test_nothing_moves_from_another_phase_than_was_shown(
    bare: Project, words: list[str], shown: str, stays: str
) -> None:
    job = str(bare.job)
    steps = {
        "shadow": ["advance"],
        "ramp 20 %": ["advance", "ramp 20"],
        "live": ["advance", "ramp 100", "advance"],
    }
    for step in steps[stays]:
        word, *percent = step.split()
        force(bare, word, job, PATTERN, *percent)
    override = [] if words[0] == "rollback" else ["--override", "drill"]
    refused = bare.run("cutover", words[0], job, PATTERN, *words[1:], *override, "--from", shown)
    assert (refused.code, pins.said(refused.err, shown=shown)) == (1, True)
    assert phase(bare) == stays
    bare.done("cutover", words[0], job, PATTERN, *words[1:], *override, "--from", stays.split()[0])
    assert phase(bare) != stays


def test_all_patterns_have_no_phase_in_common(bare: Project) -> None:
    refused = bare.run("cutover", "rollback", str(bare.job), "--all", "--from", "live")
    assert (refused.code, pins.said(refused.err)) == (2, True)


def test_unwritten_option_is_refused_outside_of_complete(bare: Project) -> None:
    force(bare, "advance", str(bare.job), PATTERN)
    refused = bare.run("cutover", "rollback", str(bare.job), PATTERN, "--unwritten", "customer")
    assert (refused.code, pins.said(refused.err)) == (2, True)
    assert phase(bare) == "shadow"
