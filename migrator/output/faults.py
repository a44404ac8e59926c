"""Faults of a mapping file as text, JSON and workflow commands of GitHub; loads no terminal library."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

from migrator.model.errors import Fault

_ESCAPES = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY_ESCAPES = {**_ESCAPES, ":": "%3A", ",": "%2C"}


def as_text(faults: Sequence[Fault]) -> Iterator[str]:
    """One line a fault."""
    return (str(fault) for fault in faults)


def as_json(faults: Sequence[Fault]) -> Iterator[str]:
    """One JSON array: file, line, where (a path in the file), what, warning."""
    yield json.dumps([asdict(fault) for fault in faults], ensure_ascii=False, indent=2)


def as_github(faults: Sequence[Fault]) -> Iterator[str]:
    """Workflow commands that GitHub shows beside the lines of a pull request.

    Source: GitHub Actions, "Workflow commands", with the escapes of its toolkit.
    """
    for fault in faults:
        level = "warning" if fault.warning else "error"
        file, where = _escaped(fault.file, _PROPERTY_ESCAPES), _escaped(fault.where, _PROPERTY_ESCAPES)
        place = f"file={file},line={max(fault.line, 1)},title={where or 'mapping'}"
        yield f"::{level} {place}::{_escaped(fault.what, _ESCAPES)}"


def _escaped(text: str, escapes: dict[str, str]) -> str:
    return "".join(escapes.get(char, char) for char in text)


FAULT_FORMS: dict[str, Callable[[Sequence[Fault]], Iterator[str]]] = {
    "text": as_text,
    "json": as_json,
    "github": as_github,
}
