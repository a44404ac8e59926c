"""`migrator init --from-workbench`: the head of a mapping, from a model of NoSQL Workbench."""

from __future__ import annotations

from pathlib import Path

import click

from migrator.cli.command_line import print_json
from migrator.mapping.language.workbench import LONGEST_BYTES, head_of_model
from migrator.runtime.errors import CLEAN, SettingsError


def init_from_model(file: Path, table: str | None, out: Path | None, *, force: bool, as_json: bool) -> int:
    """The exit code of `migrator init --from-workbench`."""
    text = head_of_model(_model(file), file.name, table)
    if out is None:
        if as_json:
            print_json({"mapping": text})
        else:
            click.echo(text, nl=False)
        return CLEAN
    _write_new(out, text, force=force)
    if as_json:
        print_json({"file": str(out)})
    else:
        click.echo(f"{out}: written; fill in tables and columns, then `migrator mapping check {out}`")
    return CLEAN


def _model(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            raw = opened.read(LONGEST_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read ({error.strerror})") from None
    if len(raw) > LONGEST_BYTES:
        raise SettingsError(f"{file}: larger than {LONGEST_BYTES // 2**20} MiB, which no model of a table is")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file}: byte {error.start} is no UTF-8, so it is no JSON of a model") from None


def _write_new(out: Path, text: str, *, force: bool) -> None:
    try:
        with out.open("w" if force else "x", encoding="utf-8", newline="\n") as opened:
            opened.write(text)
    except FileExistsError:
        raise SettingsError(
            f"{out} is there already; name another file, or add --force to replace it"
        ) from None
    except OSError as error:
        raise SettingsError(f"{out}: cannot be written ({error.strerror}); name another file") from None
