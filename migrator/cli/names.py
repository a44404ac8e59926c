"""Shell completion: jobs, and a job's patterns, entities and runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

_HEAD = 4096
"""Characters of a file that must contain its first words."""


def jobs(ctx: click.Context, param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Job files with this prefix, here and one folder below; any file if there is none."""
    found = sorted({str(path) for path in _yaml_files(typed) if _is_job(path)})
    return [CompletionItem(name) for name in found] or [CompletionItem(typed, type="file")]


def patterns(ctx: click.Context, param: click.Parameter, typed: str) -> list[CompletionItem]:
    return _beginning(_mapping(ctx).get("access_patterns"), typed)


def entities(ctx: click.Context, param: click.Parameter, typed: str) -> list[CompletionItem]:
    return _beginning(_mapping(ctx).get("entities"), typed)


def runs(ctx: click.Context, param: click.Parameter, typed: str) -> list[CompletionItem]:
    # The command reports faults of the job or the journal, not its completion.
    with suppress(Exception):
        return [
            CompletionItem(number, help=kind)
            for number, kind in _runs(_file(ctx))
            if number.startswith(typed)
        ]
    return []


def _runs(job_file: Path) -> Iterator[tuple[str, str]]:
    from migrator.runtime.retry import Backoff
    from migrator.stages.session.session import JobSession

    with JobSession(job_file, patience=Backoff(attempts=1)) as session:
        for run in reversed(session.journal.runs(session.job.name)):
            yield str(run.id), run.identity.kind


def _beginning(names: Any, typed: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names or () if isinstance(name, str) and name.startswith(typed)]


def _yaml_files(typed: str) -> Iterator[Path]:
    folder = Path(typed).parent
    for glob in ("*.yaml", "*.yml", "*/*.yaml", "*/*.yml"):
        with suppress(OSError):
            yield from (path for path in folder.glob(glob) if str(path).startswith(typed))


def _is_job(path: Path) -> bool:
    with suppress(OSError, ValueError), path.open(encoding="utf-8") as file:
        return any(line.startswith("job:") for line in file.read(_HEAD).splitlines())
    return False


def _file(ctx: click.Context) -> Path:
    # If the last word is an option without its value, click has not assigned names yet.
    given = ctx.params.get("job") or ctx.params.get("file") or ctx.args[:1] or [""]
    return Path(given if isinstance(given, (str, Path)) else given[0])


def _mapping(ctx: click.Context) -> Mapping[str, Any]:
    """The mapping file, unexpanded: an unset environment variable hides no names."""
    file = _file(ctx)
    with suppress(Exception):
        words = _words(file)
        return (
            words if "mapping" not in words or "job" not in words else _words(file.parent / words["mapping"])
        )
    return {}


def _words(file: Path) -> Mapping[str, Any]:
    from migrator.mapping.language.document import plain_of  # here, so that a help does not wait for it

    words = plain_of(file.read_text(encoding="utf-8"))
    return words if isinstance(words, dict) else {}
