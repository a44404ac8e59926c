"""`migrator mapping`: mappings and jobs checked before anything moves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from migrator.cli.command_line import print_json
from migrator.mapping.check.check import check_form
from migrator.mapping.language.parse import ParsedMapping
from migrator.runtime.errors import CLEAN, WRONG_USE, Fault, MappingError, amount
from migrator.runtime.values import asdict
from migrator.settings.job import is_job, load_job
from migrator.settings.transforms import read_mapping


def check(files: tuple[Path, ...], source: str | None, invertible: bool, as_json: bool) -> int:
    if invertible:
        from migrator.commands.mapping_source import invertible as check_invertible

        return check_invertible(files, source, as_json)
    results = [(file, *_examined(file, source)) for file in files]
    wrong = sum(not fault.warning for _, faults, _ in results for fault in faults)
    if as_json:
        print_json([asdict(fault) for _, faults, _ in results for fault in faults])
        return WRONG_USE if wrong else CLEAN
    for file, faults, verdict in results:
        for fault in faults:
            click.echo(str(fault), err=True)
        warnings = sum(fault.warning for fault in faults)
        summary = (
            f"{file}: {verdict or amount(len(faults) - warnings, 'fault')}, {amount(warnings, 'warning')}"
        )
        click.echo(summary, err=not verdict)
    return WRONG_USE if wrong else CLEAN


def _examined(file: Path, source: str | None) -> tuple[Sequence[Fault], str]:
    try:
        faults, verdict = _faults_and_summary(file, source)
    except MappingError as error:
        return error.faults, ""
    return faults, "" if any(not fault.warning for fault in faults) else verdict


def _faults_and_summary(file: Path, url: str | None) -> tuple[Sequence[Fault], str]:
    if not is_job(file):
        return _of_mapping(read_mapping(file), url)
    job = load_job(file, os.environ)
    faults, verdict = _of_mapping(read_mapping(job.mapping), url, job.cutover.leave)
    return faults, f"the job is valid; its mapping: {verdict}"


def _of_mapping(
    parsed: ParsedMapping, url: str | None, leave: Sequence[str] = ()
) -> tuple[Sequence[Fault], str]:
    if parsed.mapping.documents:
        from migrator.commands.mapping_source import check_on_declarations

        return check_on_declarations(parsed, leave)
    if url is None:
        return check_form(parsed), "its form is valid; give --source to check it against the schema"
    # Here: the form alone waits for no SQL and no AWS.
    from migrator.commands.mapping_source import check_on_source

    return check_on_source(url, parsed, leave)
