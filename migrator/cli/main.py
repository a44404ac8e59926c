"""The command `migrator`: its groups, and how every error becomes one clear line and an exit code."""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from typing import Any, NoReturn

import click

from migrator.errors import INTERRUPTED, STOPPED, WRONG_USE, MappingError, MigratorError

_MODULES = {
    "mapping": "mapping",
    "table": "table",
    "capture": "capture",
    "backfill": "backfill",
    "relay": "relay",
    "purge": "relay",
    "verify": "verify",
    "undo": "undo",
    "forget": "forget",
    "status": "journal",
    "findings": "journal",
    "query": "query",
    "shadow": "shadow",
    "cutover": "cutover",
    "report": "report",
    "decommission": "decommission",
    "doctor": "doctor",
    "completion": "completion",
    "local": "local",
}
"""Commands with the modules of this room that they are in."""


class _Commands(click.Group):
    """Commands that are imported when they are asked for: a shell's completion and --version wait for no SQL or AWS."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULES:
            return None
        # What an import makes stays; looking for garbage in it would take a tenth of the start.
        gc.disable()
        try:
            module = import_module(f"migrator.cli.{_MODULES[cmd_name]}")
        finally:
            gc.enable()
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(package_name="single-table-migrator", prog_name="migrator")
@click.option("--verbose", is_flag=True, help="Log what is done, not only warnings.")
def cli(verbose: bool) -> None:
    """Move a live relational database into one DynamoDB table.

    The steps: `mapping check`, `table create`, `backfill`, `verify`; see README.md.
    """
    from migrator import logs  # here, so that --version does not wait for it

    level = "debug" if verbose else "info" if not sys.stderr.isatty() else "warning"
    logs.configure(json=not sys.stderr.isatty(), level=level)


def main(args: list[str] | None = None) -> NoReturn:
    """Runs the command line; ends the process with the exit codes of docs/architecture.md."""
    sys.exit(run(args))


def run(args: list[str] | None = None) -> int:
    """The exit code of one command line."""
    try:
        result: Any = cli.main(args=args, prog_name="migrator", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except MappingError as error:
        _print_faults(error)
        return error.exit_code
    except MigratorError as error:
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return WRONG_USE
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted; what was checkpointed stays", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("MIGRATOR_TRACE"):
            raise
        what = f"internal error ({type(error).__name__}); what was checkpointed stays"
        click.echo(f"error: {what}. Run again with MIGRATOR_TRACE=1 and report what it prints.", err=True)
        return STOPPED


def _print_faults(error: MappingError) -> None:
    for fault in error.faults:
        click.echo(str(fault), err=True)
    serious = sum(not fault.warning for fault in error.faults)
    click.echo(f"{serious} fault(s)", err=True)
