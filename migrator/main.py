"""The command `migrator`: its groups, and how every error becomes one line and an exit code."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, NoReturn, TextIO, cast

import click

import migrator.features.bulk.commands  # noqa: F401
from migrator.cli.command_line import ENGINES, LOG, PROBES, Branch, CommandLine, log_from
from migrator.cli.inert import plain
from migrator.commands.cutover import cutover, reverse
from migrator.commands.move import backfill, pace, shadow, status, verify
from migrator.commands.prepare import capture, doctor, local, mapping, relay, table
from migrator.features.exports.commands import export
from migrator.features.init.commands import examples, init
from migrator.features.look.commands import look, ui
from migrator.features.plan.commands import plan
from migrator.features.recover.commands import recover
from migrator.features.removal.commands import clean, decommission
from migrator.features.report.commands import report
from migrator.features.revisions.commands import migrate_mapping
from migrator.runtime.errors import (
    INTERRUPTED,
    STOPPED,
    WRONG_USE,
    Fault,
    MappingError,
    MigratorError,
    amount,
)

SECTIONS = {
    "Design": (init, plan, mapping, examples),
    "Prepare": (doctor, table, export, capture, local),
    "Move": (backfill, relay, verify, migrate_mapping, look, ui, status, pace),
    "Cut over": (shadow, report, cutover, reverse, decommission),
    "Repair": (recover, clean),
}
"""Every command, by its heading in the help."""


def _print_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from importlib.metadata import version

        from migrator.mapping.items.native import EXECUTOR

        click.echo(f"migrator, version {version('single-table-migrator')}, items by the {EXECUTOR} executor")
        ctx.exit()


@click.group(
    cls=Branch,
    sections={heading: [str(one.name) for one in commands] for heading, commands in SECTIONS.items()},
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Move a live relational database into one DynamoDB table.

    Run each command with --help for more. docs/runbook.md shows a migration from start to end.
    """
    log_from(**ctx.meta.get(LOG, {}))


def _probe(*given: Any, **asked: Any) -> int:
    from migrator.features.probe.work import probe

    return probe(*given, **asked)


def _open_spark(*given: Any) -> Any:
    from migrator.features.spark.work import open_spark

    return open_spark(*given)


PROBES["dynamodb"] = _probe
ENGINES["spark"] = _open_spark

for _commands in SECTIONS.values():
    for _command in _commands:
        cli.add_command(_command)


def main(args: list[str] | None = None) -> NoReturn:
    """Run the command line and exit with the codes of docs/scripts.md."""
    _open_closed_streams()
    code = run(args)
    # The interpreter would collect garbage over all imports: a fifth of a short command's time.
    gc.freeze()
    sys.exit(code)


def _open_closed_streams() -> None:
    """The next opened file would get the number of a stream that was closed before, and be written to."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


def run(args: list[str] | None = None) -> int:
    """Run one command line and return its exit code; prints plain text, or one document with --json."""
    command_line = CommandLine(tuple(sys.argv[1:] if args is None else args))
    with plain_streams(command_line) as printed:
        ended = _ended(command_line)
        # Not on standard output, which programs read.
        if ended.code and command_line.wants_json and not printed.written:
            click.echo(json.dumps(ended.data(), ensure_ascii=False))
    return ended.code


@dataclass(frozen=True)
class _Ended:
    """`error`: why a command has no result; '' if it printed one."""

    code: int
    error: str = ""
    faults: Sequence[Fault] = ()

    def data(self) -> dict[str, Any]:
        data = {"error": self.error, "exit_code": self.code}
        return data | {"faults": [asdict(fault) for fault in self.faults]} if self.faults else data


def _ended(command_line: CommandLine) -> _Ended:
    try:
        result: Any = cli.main(
            args=list(command_line.words), prog_name="migrator", standalone_mode=False, obj=command_line
        )
        return _Ended(result if isinstance(result, int) else 0)
    except MigratorError as error:
        return _reported(error, command_line)
    except click.exceptions.Exit as error:
        return _Ended(error.exit_code)
    except click.ClickException as error:
        error.show()
        return _Ended(WRONG_USE, error.format_message())
    except (click.Abort, KeyboardInterrupt):
        # Ctrl-C outside a command: before it handles signals, or after its end, when changes may have been made.
        return _failed(INTERRUPTED, command_line.again(_CUT_OFF))
    except _UnwrittenError as error:
        # Also what it still holds, or the end of the interpreter fails.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _failed(STOPPED, command_line.again(str(error))) if str(error) else _Ended(STOPPED)
    except Exception as error:
        if os.environ.get("MIGRATOR_TRACE"):
            raise
        what = f"internal error ({type(error).__name__}); what was checkpointed stays"
        return _failed(STOPPED, f"error: {what}. Run again with MIGRATOR_TRACE=1 and report what it prints.")


class _UnwrittenError(Exception):
    """Standard output cannot be written. Without a message if its reader has closed the pipe."""


_CUT_OFF = "interrupted; what was written stays, and the same command resumes"


def _reported(error: MigratorError, command_line: CommandLine) -> _Ended:
    if isinstance(error, MappingError):
        _print_faults(error)
        return _Ended(error.exit_code, str(error), error.faults)
    message = command_line.again(str(error))
    click.echo(f"error: {message}", err=True)
    return _Ended(error.exit_code, message)


def _failed(code: int, message: str) -> _Ended:
    click.echo(message, err=True)
    return _Ended(code, message.removeprefix("error: "))


class _Written:
    """`is_needed`: a write that fails (a full disk, a closed pipe) ends the command; messages are not needed."""

    def __init__(self, beneath: TextIO, *, is_needed: bool) -> None:
        self.beneath = beneath
        self.is_needed = is_needed

    def write(self, text: str) -> int:
        with self._checked():
            self.beneath.write(text)
        return len(text)

    def flush(self) -> None:
        with self._checked():
            self.beneath.flush()

    @contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if self.is_needed:
                what = f"error: standard output cannot be written ({error.strerror})"
                advice = f"{what}; make room there, then run the same command again"
                raise _UnwrittenError("" if isinstance(error, BrokenPipeError) else advice) from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.beneath, name)


class PlainStream:
    """Text stream that escapes invisible characters, except newlines and tabs.

    A terminal thus never interprets control sequences of a row, a name or a file. `transform`: applied to
    each text.
    """

    def __init__(self, beneath: TextIO, transform: Callable[[str], str]) -> None:
        self.beneath = beneath
        self.transform = transform
        self.written = False

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError("text is written here")  # click writes bytes to find the kind of a stream
        self.written = True
        self.beneath.write(plain(self.transform(text), lines=True))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.beneath, name)


@contextmanager
def plain_streams(command_line: CommandLine) -> Iterator[PlainStream]:
    """Make standard output (which is yielded) and standard error such streams during the block."""
    before = sys.stdout, sys.stderr
    out, err = (cast(TextIO, _Written(stream, is_needed=stream is sys.stdout)) for stream in before)
    # A document stays as it is: control characters in it may be a row's text.
    streams = [
        PlainStream(out, lambda text: text if command_line.wants_json else command_line.whole(text)),
        PlainStream(err, command_line.whole),
    ]
    sys.stdout, sys.stderr = (cast(TextIO, stream) for stream in streams)
    try:
        yield streams[0]
    finally:
        sys.stdout, sys.stderr = before


def _print_faults(error: MappingError) -> None:
    for fault in error.faults:
        click.echo(str(fault), err=True)
    serious = sum(not fault.warning for fault in error.faults)
    click.echo(amount(serious, "fault"), err=True)
