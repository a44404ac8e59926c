"""`migrator examples`: the package's mappings, jobs and designs, copied into a folder."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import click

from migrator.cli.command_line import print_json
from migrator.runtime.errors import CLEAN, SettingsError

_FORMS = (".yaml", ".json", ".md", ".sql")


def examples(folder: Path, force: bool, as_json: bool) -> int:
    found = dict(_shipped(resources.files("migrator") / "examples"))
    if not found:
        raise SettingsError("this installation has no examples; install the package again")
    wanted = {folder / name: source for name, source in sorted(found.items())}
    if there := [str(path) for path in wanted if path.exists() and not force]:
        what = f"{there[0]} and {len(there) - 1} more are" if len(there) > 1 else f"{there[0]} is"
        raise SettingsError(
            f"{what} there already; name another folder, or add --force to replace what is there"
        )
    for path, source in wanted.items():
        _copy(source, path)
    if as_json:
        print_json({"folder": str(folder), "files": [str(path) for path in wanted]})
    else:
        click.echo(
            f"{len(wanted)} files in {folder}: jobs/, mappings/ and mappings/designs/, each with what it is about"
        )
        click.echo(
            f"begin with {folder / 'mappings' / 'README.md'}, or let `migrator init` propose a mapping of your own database"
        )
    return CLEAN


def _copy(source: Traversable, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source.read_bytes())
    except OSError as error:
        raise SettingsError(f"{path}: cannot be written ({error.strerror}); name another folder") from None


def _shipped(folder: Traversable, below: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.is_dir():
            yield from _shipped(entry, f"{below}{entry.name}/")
        elif entry.name.endswith(_FORMS):
            yield below + entry.name, entry
