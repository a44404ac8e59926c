"""What every command of the tree has, looked for by walking it, so that a new command has it, too."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import shlex
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import click
import pytest
import structlog

import migrator
from migrator.main import SECTIONS, cli
from migrator.runtime.logs import get_logger
from tests import pins
from tests.journeys.in_process import Ended, run_here

NEEDED = {"pattern": "p", "percent": "5", "shell": "bash", "job": "none.yaml", "file": "none.yaml"}
"""Words for arguments, so that a command line can be read."""
NEEDED_OPTIONS = {
    "--entity": "e",
    "--key": "1",
    "--source": "sqlite:///none.db",
    "--out": "shop.yaml",
    "--pk": "A",
    "--to": "items",
    "--as": "terraform",
    "--from": "s3://some-bucket/items",
}
BESIDES = {"clean": ["--tombstones"], "init": ["--out", "shop.yaml"]}
"""Options of which one is needed."""
WITHOUT_FILES = [["examples"], ["local"]]


def leaves(
    command: click.Command, names: list[str], context: click.Context
) -> Iterator[tuple[list[str], click.Command]]:
    if not isinstance(command, click.Group):
        yield names, command
        return
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        assert child is not None
        yield from leaves(child, [*names, name], context)


LEAVES = {" ".join(names): (names, leaf) for names, leaf in leaves(cli, [], click.Context(cli))}


def line_of(name: str) -> list[str]:
    """A command line that can be read, and ends at a file that is not there."""
    names, leaf = LEAVES[name]
    words = list(names)
    for param in leaf.params:
        if isinstance(param, click.Argument) and param.required:
            words.append(NEEDED.get(str(param.name), "none.yaml"))
        elif isinstance(param, click.Option) and param.required:
            words += [param.opts[0], NEEDED_OPTIONS[param.opts[0]]]
    return [*words, *BESIDES.get(name, [])]


def ran(tmp_path: Path, *words: str) -> Ended:
    environment = {**os.environ, "MIGRATOR_HOME": str(tmp_path / "home")}
    return run_here(words, tmp_path, environment)


_READING = pytest.mark.xdist_group("texts of the code")  # one worker reads them


@functools.cache
def texts() -> list[tuple[str, str]]:
    """(place, text) of each text in the code, with X for a value in it."""
    return list(_texts())


def _texts() -> Iterator[tuple[str, str]]:
    for path in sorted(Path(migrator.__file__).parent.rglob("*.py")):
        parts: set[ast.AST] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts.update(node.values)
                values = [part.value if isinstance(part, ast.Constant) else "X" for part in node.values]
                yield f"{path}:{node.lineno}", "".join(map(str, values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts:
                yield f"{path}:{node.lineno}", node.value


def fault_of(words: list[str]) -> str:
    """What click would refuse of a command line: a command or an option that there is not."""
    command: click.Command = cli
    while isinstance(command, click.Group) and words and (child := command.commands.get(words[0])):
        command, words = child, words[1:]
    known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    if isinstance(command, click.Group) and words:
        return words[0]
    return next((word for word in words if word.startswith("--") and word not in known), "")


@_READING
def test_every_command_that_a_text_names_can_be_given() -> None:
    named = [
        (place, line)
        for place, text in texts()
        for written in re.findall(
            r"`(migrator [a-z][^`]+)`|^(migrator [a-z-]+ (?:[a-z-]+ )*(?:JOB|X)\b.*)$", text, re.M
        )
        for line in "".join(written).split(" && ")
        if "|" not in line
    ]
    assert len(named) > 300
    assert not [one for one in named if fault_of(one[1].split()[1:])]


@_READING
def test_every_option_that_the_code_writes_is_one_of_a_command() -> None:
    commands = [cli, *(leaf for _, leaf in LEAVES.values())]
    known = {
        name for one in commands for param in one.params for name in (*param.opts, *param.secondary_opts)
    }
    written = [
        (place, option)
        for place, text in texts()
        if "aws " not in text
        and not place.partition(":")[0].endswith(
            ("source/dynamodb/opening.py", "embedded.py", "python/module.py")
        )
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)
    ]
    assert not [one for one in written if one[1] not in {*known, "--help", "--version"}]


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_reports_its_failure_in_one_json_document(name: str, tmp_path: Path) -> None:
    words = line_of(name)
    wrong = ran(tmp_path, *words, "--json", "--no-such-option")
    assert (wrong.code, json.loads(wrong.out)["exit_code"]) == (2, 2)
    assert "--no-such-option" in json.loads(wrong.out)["error"]
    ended = ran(tmp_path, *words, "--json")
    data = json.loads(ended.out)
    if LEAVES[name][0] in WITHOUT_FILES:
        assert ended.code == 0, ended.err
    elif name == "doctor":
        assert (ended.code, data["checks"][0]["state"]) == (1, "failed")
    else:
        assert (ended.code, data["exit_code"]) == (2, 2), ended.err
        assert "none.yaml" in data["error"]
        assert data["error"] in ended.err
    for place in (0, len(LEAVES[name][0]) - 1, len(words)):
        assert "No such option" not in ran(tmp_path, *words[:place], "--verbose", *words[place:]).err


@pytest.mark.parametrize("name", LEAVES)
def test_every_help_ends_with_an_example_that_can_be_read(name: str, tmp_path: Path) -> None:
    names, leaf = LEAVES[name]
    *_, heading, line = ran(tmp_path, *names, "--help").out.splitlines()
    assert heading == "Example:"
    assert line.startswith(f"  migrator {name}")
    assert len(line) < 100
    words = shlex.split(line)[1 + len(names) :]
    shell = next((place for place, word in enumerate(words) if word.startswith(">")), len(words))
    leaf.make_context(name, words[:shell])


def test_the_help_lists_every_command_once_and_cuts_no_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(SECTIONS) < {line.rstrip(":") for line in ran(tmp_path, "--help").out.splitlines()}
    groups = [[name] for name, command in cli.commands.items() if isinstance(command, click.Group)]
    for words, columns in product([[], *groups, *(names for names, _ in LEAVES.values())], ("80", "120")):
        monkeypatch.setenv("COLUMNS", columns)
        said = ran(tmp_path, *words, "--help").out.replace("[ARGS]...", "")
        assert ("..." in said, said.count("("), "\nExample:\n  migrator" in said) == (
            False,
            said.count(")"),
            True,
        )
        assert max(map(len, said.splitlines())) <= int(columns)


@pytest.mark.parametrize(
    ("asked", "seen"), [("", ["warning", "error"]), ("-v", ["debug", "warning", "error"]), ("-q", ["error"])]
)
def test_log_level_option_works_before_and_after_a_command(
    asked: str, seen: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    for place in ("before", "behind"):
        file = tmp_path / place
        options = [*asked.split(), "--log-format", "json", "--log-file", str(file)]
        cli.main(
            ["local", *options] if place == "behind" else [*options, "local"],
            standalone_mode=False,
        )
        for level in ("debug", "warning", "error"):
            getattr(get_logger("here"), level)("said")
        assert [json.loads(line)["level"] for line in file.read_text().splitlines()] == seen
    structlog.reset_defaults()


def test_unwritable_log_file_fails_before_any_work(tmp_path: Path) -> None:
    ended = ran(tmp_path, "local", "--log-file", str(tmp_path / "none" / "log"))
    assert ended.code == 2
    assert "--log-file" in ended.err
    assert pins.said(ended.err)


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_is_suggested_if_misspelt(name: str, tmp_path: Path) -> None:
    *group, last = LEAVES[name][0]
    misspelt = last + last[-1]
    ended = ran(tmp_path, *group, misspelt)
    assert ended.code == 2
    assert pins.said(ended.err, misspelt=misspelt)
    assert f"'{last}'" in ended.err


@pytest.mark.parametrize("name", LEAVES)
def test_single_value_option_is_refused_if_given_twice(name: str, tmp_path: Path) -> None:
    for param in LEAVES[name][1].params:
        if isinstance(param, click.Option) and not param.is_flag and not param.multiple:
            ended = ran(tmp_path, *line_of(name), param.opts[0], "1", param.opts[0], "2")
            assert ended.code == 2
            assert f"'{param.opts[0]}' is given" in ended.err
            assert pins.said(ended.err)


@pytest.mark.parametrize("name", LEAVES)
def test_an_option_and_its_opposite_are_refused_together(name: str, tmp_path: Path) -> None:
    for param in LEAVES[name][1].params:
        if isinstance(param, click.Option) and param.secondary_opts:
            ended = ran(tmp_path, *line_of(name), param.opts[0], param.secondary_opts[0])
            assert (ended.code, f"'{param.opts[0]}' is given" in ended.err) == (2, True)
