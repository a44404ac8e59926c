"""`migrator query`: one access pattern, asked of both sides."""

from __future__ import annotations

from pathlib import Path

import click

from migrator import wiring
from migrator.cli.options import read_job, stdout
from migrator.errors import DIFFERENT, SettingsError
from migrator.mapping.document import did_you_mean
from migrator.mapping.patterns import read_params
from migrator.mapping.shown_values import json_text
from migrator.report.answers import answer_data, print_answer, print_explanation
from migrator.stages.query import ask


def query(job: Path, pattern: str, params: tuple[str, ...], explain: bool, as_json: bool) -> int:
    """The exit code of `migrator query`."""
    read = read_job(job)
    given = _given(params)
    with wiring.lay(read, "query") as laid:
        mapping = laid.checked.mapping
        if pattern not in mapping.patterns:
            known = did_you_mean(pattern, mapping.patterns)
            raise SettingsError(f"the mapping has no access pattern '{pattern}'{known}")
        found = mapping.patterns[pattern]
        values = read_params(found, given)
        target = wiring.open_target(read, mapping.table, lambda: False)
        plans = [entity.plan for entity in laid.checked.read]
        answer = ask(mapping, found, values, laid.source, target.store, plans=plans)
    if as_json:
        click.echo(json_text(answer_data(answer)))
    else:
        print_answer(stdout(), answer)
        if explain:
            print_explanation(stdout(), answer)
    return 0 if answer.same else DIFFERENT


def _given(params: tuple[str, ...]) -> dict[str, str]:
    """Raises: SettingsError where a parameter is no name=value, or has two values."""
    given: dict[str, str] = {}
    for name, value in map(_pair, params):
        if name in given:
            raise SettingsError(f"-p {name}= is given twice; keep one (a list is one value: -p {name}=1,2,3)")
        given[name] = value
    return given


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise SettingsError("a parameter is written -p name=value")
    return name, value
