"""`migrator examples`: the mappings, jobs and designs that this package brings along, copied into a folder."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path, PurePosixPath

import click

from migrator.cli.command_line import print_json
from migrator.model.errors import CLEAN, SettingsError

DISTRIBUTION = "single-table-migrator"
SHARE = f"share/{DISTRIBUTION}/"
"""Where an installed package has them, below the environment's folder (`data-files` of pyproject.toml)."""
_CLONE = Path(__file__).parents[3]
_OF_A_CLONE = (
    "mappings/*.yaml", "mappings/mapping.schema.json", "mappings/README.md", "mappings/designs/*.*",
    "jobs/ecommerce.yaml", "jobs/chinook.yaml", "jobs/job.schema.json",
)  # fmt: skip


def examples(folder: Path, force: bool, as_json: bool) -> int:
    """The exit code of `migrator examples`.

    Raises: SettingsError where a file is there already (but with `force`), or one cannot be written.
    """
    found = _installed() or _of_a_clone()
    if not found:
        raise SettingsError(
            "this installation brings no examples; install the package anew, or take them from a clone"
        )
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


def _copy(source: Path, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source.read_bytes())
    except OSError as error:
        raise SettingsError(f"{path}: cannot be written ({error.strerror}); name another folder") from None


def _installed() -> dict[str, Path]:
    """Name below the folder -> file, of a package that was installed from a wheel."""
    try:
        files = metadata.files(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return {}
    ours = {PurePosixPath(file).as_posix().partition(SHARE)[2]: Path(str(file.locate())) for file in files}
    return {name: path for name, path in ours.items() if name}


def _of_a_clone() -> dict[str, Path]:
    """The same of a clone that this is run from."""
    return {
        path.relative_to(_CLONE).as_posix(): path for pattern in _OF_A_CLONE for path in _CLONE.glob(pattern)
    }
