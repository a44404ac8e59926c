"""What the command line takes: the commands, their arguments and options, and the exit codes."""

from __future__ import annotations

from collections.abc import Iterator

import click
from syrupy.assertion import SnapshotAssertion

from migrator.main import cli
from migrator.runtime import errors


def commands(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield words
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from commands(inner, (*words, name))


def _taken(param: click.Parameter) -> str:
    """An argument or option as it is written, `…` where it may be given again, `!` where it must be given."""
    is_flag = isinstance(param, click.Option) and param.is_flag
    value = "" if is_flag else param.make_metavar(click.Context(cli))
    names = [*param.opts, *param.secondary_opts] if isinstance(param, click.Option) else []
    return " ".join(filter(None, ["/".join(names), value])) + "…" * param.multiple + "!" * param.required


def test_the_commands_and_what_they_take_are_the_pinned_ones(pinned: SnapshotAssertion) -> None:
    lines = []
    for words in commands(cli):
        command: click.Command = cli
        for word in words:
            assert isinstance(command, click.Group)
            command = command.commands[word]
        params = [one for one in command.params if not getattr(one, "hidden", False)]
        if words:  # every command takes those of all commands, too
            params = [one for one in params if one.name not in {root.name for root in cli.params}]
        lines += [" ".join(("migrator", *words)), *(f"    {_taken(one)}" for one in params)]
    assert "\n".join(lines) + "\n" == pinned


def test_every_error_ends_with_the_pinned_exit_code(pinned: SnapshotAssertion) -> None:
    codes = sorted(
        f"{name} {kind.exit_code}"
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.MigratorError)
    )
    numbers = sorted(f"{name} {number}" for name, number in vars(errors).items() if isinstance(number, int))
    assert "\n".join([*numbers, "", *codes, ""]) == pinned
