"""Pages that are made from the code hold what the code has, and what pages show of the command line is there."""

from __future__ import annotations

import ast
import json
import re
import shlex
import sqlite3
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click
import pytest
import structlog

from migrator.main import cli
from migrator.runtime import logs
from tests import pins
from tests.journeys.in_process import run_here
from tests.outside.test_commands import commands
from tools.pages import reference, site

ROOT = site.ROOT
pytestmark = pytest.mark.xdist_group("pages")  # one worker reads all of the code for them
NOT_SHOWN = ("order_items", "products", "categories", "sessions")
"""Tables of the shop that the mapping of the front page leaves out."""
_BLOCK = re.compile(r"^```(?:\w+)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return reference.pages()


@pytest.mark.slow
def test_every_command_and_option_is_on_the_commands_page(pages: dict[str, str]) -> None:
    for words in commands(cli):
        _, command = _command_of([*words])
        if words:
            assert re.search(rf"^#+ migrator {' '.join(words)}$", pages["commands"], re.MULTILINE), words
        for option in command.params if not isinstance(command, click.Group) else ():
            assert option.opts[0] in pages["commands"] or option.human_readable_name in pages["commands"]


@pytest.mark.parametrize(("file", "page"), [(file, page) for file, (page, _) in reference.SCHEMAS.items()])
def test_every_word_of_mappings_and_jobs_is_on_its_page(file: str, page: str, pages: dict[str, str]) -> None:
    schema = json.loads((ROOT / file).read_text(encoding="utf-8"))
    for part in (schema, *schema["$defs"].values()):
        for word in part.get("properties", ()):
            assert f"| `{word}`" in pages[page]


def test_metrics_are_found_alone_and_in_a_table_read_by_a_loop() -> None:
    code = """
TOLD = {"stored": "Items written."}
def collect():
    yield GaugeMetricFamily("migrator_lag_seconds", "Age of the oldest mark.", 1)
    yield families.counter("migrator_retries", "Tries.", [])
    for name, help_text in TOLD.items():
        yield CounterMetricFamily(f"migrator_relay_{name}", help_text, 2)
"""
    found = [(one.name, one.kind, one.meaning) for one in reference.metrics_of(ast.parse(code))]
    assert sorted(found) == [
        ("migrator_lag_seconds", "gauge", pins.text()),
        ("migrator_relay_stored_total", "counter", "Items written."),
        ("migrator_retries_total", "counter", "Tries."),
    ]


@pytest.mark.slow
def test_metrics_and_lines_that_are_known_stand_on_their_pages(pages: dict[str, str]) -> None:
    assert {"migrator_marks_waiting", "migrator_lag_seconds"} <= {one.name for one in reference.metrics()}
    events = {line.event: line for line in reference.log_lines()}
    assert events["rolled_back"].fields == ("pattern", "after", "reason")
    assert "| `page_done` | debug |" in pages["log-lines"]


def test_the_changes_have_a_heading_for_the_version_in_hand() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert version in headings


def test_the_page_of_log_lines_names_all_that_each_line_has(
    pages: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure(json=True)
    try:
        logs.name_job("shop")
        logs.get_logger("relay").info("stopped")
        line = json.loads(capsys.readouterr().err)
    finally:
        structlog.reset_defaults()
    assert {"job", "host", "pid", "version"} <= line.keys()
    head = pages["log-lines"].partition("| event |")[0]
    assert line.keys() <= set(re.findall(r"`(\w+)`", head))


def test_front_page_shows_a_valid_mapping_of_twelve_lines(tmp_path: Path) -> None:
    text = (ROOT / site.FRONT).read_text(encoding="utf-8")
    mapping = re.search(r"^```yaml\n(mapping: 1\n.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert mapping is not None
    assert len(mapping[1].splitlines()) == 12
    (tmp_path / "shop.yaml").write_text(mapping[1], encoding="utf-8")
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        shop.executescript((ROOT / "docker" / "shop" / "schema.sql").read_text(encoding="utf-8"))
        shop.executescript("".join(f"DROP TABLE {table};" for table in NOT_SHOWN))
    ended = run_here(["mapping", "check", "shop.yaml", "--source", "sqlite:///shop.db"], tmp_path, {})
    assert (ended.code, ended.out) == (
        0,
        pins.text(),
    )
    assert len(text.splitlines()) <= 120


@pytest.mark.parametrize("name", ["README.md", *sorted(site.pages_of("docs"))])
def test_commands_shown_on_pages_exist_with_their_options(name: str) -> None:
    for line in _shown(ROOT / name):
        words, command = _command_of(line[1:])
        options = {text for param in command.params for text in (*param.opts, *param.secondary_opts)}
        given = {word.partition("=")[0] for word in line if word.startswith("--")}
        assert given <= options | {"--help", "--version"}, line
        assert words or "--version" in line or "--help" in line, line


def _shown(page: Path) -> Iterator[list[str]]:
    """Commands in the blocks of a page, without what the shell does with them."""
    for block in _BLOCK.findall(page.read_text(encoding="utf-8")):
        for line in block.splitlines():
            if re.match(r"(\$ )?migrator [a-z]", line):
                command = re.split(r" (?:\||>|>>|2>|&&|&|;|#) ?|\)", line.removeprefix("$ "))[0]
                yield shlex.split(command.replace("…", "").replace("'", ""), comments=True)


def _command_of(words: list[str]) -> tuple[list[str], click.Command]:
    """The command that the words name, as deep as they go."""
    command: click.Command = cli
    named: list[str] = []
    for word in words:
        below = command.commands.get(word) if isinstance(command, click.Group) else None
        if below is None:
            break
        command, named = below, [*named, word]
    return named, command


@pytest.mark.slow
def test_unlisted_pages_and_dead_links_are_left_to_sphinx(
    tmp_path: Path,
) -> None:
    site.staged(tmp_path)
    front = (tmp_path / "index.md").read_text(encoding="utf-8")
    assert "docs/tutorial" in front
    assert "docs/reference/commands" in front
    assert (tmp_path / "mappings" / "README.md").is_file()
    assert (tmp_path / "migrator" / "settings" / "prices.yaml").is_file()


def test_there_are_eighteen_how_tos_and_four_explanations() -> None:
    sections = site.sections()
    assert (len(sections["How to"]), len(sections["Explanation"])) == (18, 4)


@pytest.mark.parametrize("name", site.sections()["How to"].values())
def test_a_how_to_has_300_to_600_words_and_ends_with_failures(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert 300 <= len(text.split()) <= 600
    assert re.findall(r"^## (.+)$", text, re.MULTILINE)[-1].startswith("If it fails")


def test_no_page_shows_a_command_that_broke() -> None:
    """Pages with commands are written by running them: what was printed is in them, also an error."""
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    assert not [page.name for page in pages if "Traceback (most recent" in page.read_text(encoding="utf-8")]
