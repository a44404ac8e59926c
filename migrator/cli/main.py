"""The command `migrator`: its groups, and how every error becomes one clear line and an exit code."""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

import click

from migrator import logs
from migrator.cli.backfill import backfill
from migrator.cli.capture import capture
from migrator.cli.completion import completion
from migrator.cli.doctor import doctor
from migrator.cli.journal import findings, status
from migrator.cli.local import local
from migrator.cli.mapping import mapping
from migrator.cli.query import query
from migrator.cli.table import table
from migrator.cli.undo import undo
from migrator.cli.verify import verify
from migrator.errors import INTERRUPTED, STOPPED, WRONG_USE, MappingError, MigratorError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="single-table-migrator", prog_name="migrator")
@click.option("--verbose", is_flag=True, help="Log what is done, not only warnings.")
def cli(verbose: bool) -> None:
    """Move a live relational database into one DynamoDB table.

    The steps: `mapping check`, `table create`, `backfill`, `verify`; see README.md.
    """
    level = "debug" if verbose else "info" if not sys.stderr.isatty() else "warning"
    logs.configure(json=not sys.stderr.isatty(), level=level)


_COMMANDS = (
    mapping,
    table,
    capture,
    backfill,
    verify,
    undo,
    status,
    findings,
    query,
    doctor,
    completion,
    local,
)
for command in _COMMANDS:
    cli.add_command(command)


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
