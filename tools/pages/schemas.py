"""JSON Schemas of mapping files and jobs, with the meaning of each word (words.yaml): for editors and CI.
Run: .ci/schemas."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from migrator.mapping.language.document import plain_of
from migrator.mapping.language.forms import MappingForm
from migrator.settings.job import IS_DURATION, JobFile

WORDS = Path(__file__).resolve().parents[2] / "docs" / "words.yaml"

# ── The forms of settings, as a person may write them ──

_VARIABLE = {"type": "string", "pattern": r"\$\{"}
_DURATION = {"type": "string", "pattern": r"^\s*(\d+(\.\d*)?([eE][+-]?\d{1,3})?|\.\d+) ?(s|min|m|h|d|)\s*$"}
_NUMBER = {"type": "string", "pattern": r"^\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*$"}
_SWITCH = {"type": "string", "enum": ["true", "false", "yes", "no", "on", "off"]}
_OTHER_FORMS: Mapping[str, list[dict[str, Any]]] = {
    "integer": [_NUMBER],
    "number": [_NUMBER],
    "boolean": [_SWITCH],
    "string": [],
}
_LIMITS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
"""pydantic's words, where a validator stands before the limit, and JSON Schema's."""
_ABOUT = frozenset({"default", "title"})
"""Words of a schema that are not conditions."""


def mapping_schema() -> dict[str, Any]:
    schema = _described(MappingForm.model_json_schema(by_alias=True), "mapping", MappingForm.__name__)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "migrator mapping", **schema}


def job_schema() -> dict[str, Any]:
    schema = JobFile.model_json_schema(by_alias=True)
    for definition in (schema, *schema["$defs"].values()):
        for name, place in definition["properties"].items():
            definition["properties"][name] = place if name == "job" else _as_written(place)
    _with_short_forms(schema["properties"], frozenset(schema["required"]))
    schema = _described(schema, "job", JobFile.__name__)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "migrator job", **schema}


def _as_written(place: dict[str, Any]) -> dict[str, Any]:
    """The place with all forms of its value: numbers as texts, durations, and a variable unless the type is
    plain text."""
    if "anyOf" in place:
        choices = [_as_written(choice) for choice in place["anyOf"]]
        return {**place, "anyOf": choices}
    condition = {_LIMITS.get(word, word): value for word, value in place.items() if word not in _ABOUT}
    is_duration = condition.pop(IS_DURATION, False)
    kind = str(condition.get("type"))
    if kind == "string" and not {"enum", "pattern", "minLength"} & condition.keys():
        return place
    others = _OTHER_FORMS.get(kind)
    if is_duration:
        others = [_DURATION]
    if others is None:
        return place
    return _about(place) | {"anyOf": [condition, *others, _VARIABLE]}


def _with_short_forms(places: dict[str, Any], required: frozenset[str]) -> None:
    """`source: URL`, `target: embedded`, and parts that are left empty."""
    for name, place in places.items():
        conditions = {word: value for word, value in place.items() if word not in _ABOUT}
        choices = conditions.get("anyOf") or [conditions]
        if name in ("source", "target"):
            choices = [*choices, {"type": "string", "minLength": 1}]
        if name not in required and {"type": "null"} not in choices:
            choices = [*choices, {"type": "null"}]
        places[name] = place if choices == [conditions] else _about(place) | {"anyOf": choices}


def _about(place: Mapping[str, Any]) -> dict[str, Any]:
    return {word: value for word, value in place.items() if word in _ABOUT}


def _described(schema: dict[str, Any], of: str, root: str) -> dict[str, Any]:
    """The schema with a description and an example of every word. `of`: mapping or job. `root`: the form at
    the top.

    Raises: KeyError for a word missing in words.yaml.
    """
    words = plain_of(WORDS.read_text(encoding="utf-8"))[of]
    forms = {root: schema, **schema.get("$defs", {})}
    for form, definition in forms.items():
        # Names and docstrings are the code's, for its readers.
        definition.pop("title", None)
        definition.pop("description", None)
        for name, place in definition.get("properties", {}).items():
            place.pop("title", None)
            # Beside a $ref these words count, too (JSON Schema 2020-12).
            place |= _about_of(words[form][name])
        others = definition.get("additionalProperties")
        if isinstance(others, dict) and "*" in words.get(form, ()):
            others |= _about_of(words[form]["*"])
    return schema


def _about_of(word: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": word["about"], "examples": [word["example"]]}


def main(files: list[str]) -> None:
    """Write the schemas of mappings and of jobs to these files."""
    for file, schema in zip(files, (mapping_schema(), job_schema()), strict=True):
        Path(file).write_text(json.dumps(schema, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
