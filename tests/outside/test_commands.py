"""What the command line shows of itself: every help, the options, the exit codes."""

from __future__ import annotations

from collections.abc import Iterator

import click
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

from migrator.cli.main import cli
from migrator.model import errors


def commands(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield words
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from commands(inner, (*words, name))


def test_every_help_is_the_pinned_one(pinned: SnapshotAssertion) -> None:
    runner = CliRunner(env={"COLUMNS": "100", "TERMINAL_WIDTH": "100"})
    helps = []
    for words in commands(cli):
        shown = runner.invoke(cli, [*words, "--help"], prog_name="migrator", terminal_width=100)
        assert shown.exit_code == 0, shown.output
        helps.append(f"$ migrator {' '.join((*words, '--help'))}\n{shown.output}")
    assert "\n".join(helps) == pinned


def test_every_error_ends_with_the_pinned_exit_code(pinned: SnapshotAssertion) -> None:
    codes = sorted(
        f"{name} {kind.exit_code}"
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.MigratorError)
    )
    numbers = sorted(f"{name} {number}" for name, number in vars(errors).items() if isinstance(number, int))
    assert "\n".join([*numbers, "", *codes, ""]) == pinned
