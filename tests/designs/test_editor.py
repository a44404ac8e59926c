"""What editors are told of mapping and job files: every word is explained, and the schemas agree with the loader."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from migrator.mapping.language.document import plain_of
from migrator.mapping.language.parse import examine_mapping
from migrator.runtime.errors import MappingError
from migrator.settings.job import load_job
from tests.designs.test_shipped import SHIPPED
from tools.pages.golden import ROOT
from tools.pages.schemas import job_schema, mapping_schema

JOBS = sorted((ROOT / "jobs").glob("*.yaml"))
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "mappings").rglob("*.md")])
KINDS = ("mapping", "job")
BLOCK = re.compile(r"^```yaml ?(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
MAPPING: dict[str, Any] = {
    "mapping": 1,
    "table": {
        "name": "Shop",
        "key": ["PK", "SK"],
        "type": "type",
        "indexes": {"GSI1": {"key": ["GSI1PK", "GSI1SK"]}},
    },
    "entities": {"user": {"items": {"User": {"key": ["USER#{id}", "PROFILE"]}}}},
}
PATTERN: dict[str, Any] = {
    "params": {"id": "integer"},
    "query": {"key": ["USER#{id}"]},
    "returns": ["name"],
    "sql": "SELECT name FROM users WHERE id = :id",
}
JOB: dict[str, Any] = {"job": 1, "mapping": "m.yaml", "source": "sqlite:///shop.db"}


@functools.cache
def schema_of(kind: str) -> dict[str, Any]:
    return mapping_schema() if kind == "mapping" else job_schema()


def words(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every word of every form, with its place in the schema."""
    for form, definition in {"": schema, **schema["$defs"]}.items():
        yield from ((f"{form}.{name}", place) for name, place in definition.get("properties", {}).items())
        if isinstance(others := definition.get("additionalProperties"), dict):
            yield f"{form}.*", others


def faults(kind: str, data: Any, form: str = "") -> list[str]:
    schema = schema_of(kind)
    place = {"$ref": f"#/$defs/{form}", "$defs": schema["$defs"]} if form else schema
    return [error.message[:200] for error in Draft202012Validator(place).iter_errors(data)]


def plain(text: str) -> Any:
    return plain_of(text)


# ── every word ──


@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_is_one(kind: str) -> None:
    Draft202012Validator.check_schema(schema_of(kind))
    assert len(list(words(schema_of(kind)))) > 80


@pytest.mark.parametrize("kind", KINDS)
def test_every_word_has_a_description_and_an_example_that_fits(kind: str) -> None:
    schema = schema_of(kind)
    for name, place in words(schema):
        assert re.fullmatch(r"[^\n]{4,300}[.?]", place["description"]), name
        assert place["examples"], name
        for example in place["examples"]:
            errors = Draft202012Validator({**place, "$defs": schema["$defs"]}).iter_errors(example)
            assert not [error.message for error in errors], name


@pytest.mark.parametrize("kind", KINDS)
def test_no_form_is_described_by_a_docstring_of_the_code(kind: str) -> None:
    assert "`" not in json.dumps(schema_of(kind))


# ── what is shipped, and what the pages show ──


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_mapping_fits_its_schema(path: Path) -> None:
    assert faults("mapping", plain(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_a_shipped_job_fits_its_schema_and_names_it_for_editors(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert faults("job", plain(text)) == []
    assert text.startswith("# yaml-language-server: $schema=job.schema.json\n")


def test_the_published_schema_of_jobs_is_that_of_the_command() -> None:
    published = (ROOT / "jobs" / "job.schema.json").read_text(encoding="utf-8")
    assert json.loads(published) == schema_of("job"), "run `.ci/pages`"


def blocks() -> list[Any]:
    found = []
    for page in PAGES:
        for number, (kind, text) in enumerate(BLOCK.findall(page.read_text(encoding="utf-8"))):
            if kind not in ("row", "schema"):
                found.append(pytest.param(kind, text, id=f"{page.stem}-{number}-{kind or 'plain'}"))
    return found


@pytest.mark.parametrize(("kind", "text"), blocks())
def test_every_example_of_the_pages_fits(kind: str, text: str) -> None:
    data = plain(text)
    assert isinstance(data, dict)
    job_words = schema_of("job")["properties"].keys()
    mapping_words = schema_of("mapping")["properties"].keys()
    is_job = "job" in data or "url" in data.get("source", "")
    if is_job or data.keys() <= job_words - mapping_words:
        assert faults("job", {**JOB, **data}) == []
    elif data.keys() <= mapping_words:
        assert faults("mapping", {**MAPPING, **data}) == []
    else:
        some = {"items": {"User": {"key": ["USER#{id}"]}}}
        data = {name: one if "sql" in one else {**some, **one} for name, one in data.items()}
        form = (
            "PatternForm"
            if kind == "patterns" or any("sql" in one for one in data.values())
            else "EntityForm"
        )
        assert [fault for one in data.values() for fault in faults("mapping", one, form)] == []


def test_a_variable_a_short_form_and_an_empty_part_fit_a_job() -> None:
    tuning = {"workers": "${N:-4}", "lease_s": "2m", "page_rows": "500"}
    given = {"target": "embedded", "cutover": None, "tuning": tuning, "name": "${NAME}"}
    assert faults("job", {**JOB, **given}) == []


# ── what the loader refuses ──

WRONG_MAPPINGS: dict[str, Any] = {
    "a word that is not known": {"tables": {}},
    "another version": {"mapping": 2},
    "a number instead of a map": {"table": 5},
    "a table's name": {"table": {**MAPPING["table"], "name": "a b"}},
    "a key of three": {"table": {**MAPPING["table"], "key": ["a", "b", "c"]}},
    "a key's type": {"table": {**MAPPING["table"], "key": [{"name": "PK", "type": "date"}]}},
    "a switch as text": {"table": {**MAPPING["table"], "indexes": {"GSI1": {"key": ["a"], "local": "yes"}}}},
    "an entity without items": {"entities": {"user": {"table": "users"}}},
    "an item without a key": {"entities": {"user": {"items": {"User": {"keep": "all"}}}}},
    "a choice": {"source": {"names": "camel"}},
    "a keep": {"entities": {"user": {"items": {"User": {"key": ["a"], "keep": "some"}}}}},
    "a value's form": {
        "entities": {"user": {"attributes": {"a": {"cons": 1}}, "items": {"U": {"key": ["a"]}}}}
    },
    "a column's type": {
        "entities": {
            "user": {"columns": {"a": {"sql": "1", "type": "money"}}, "items": {"U": {"key": ["a"]}}}
        }
    },
    "a transform": {"entities": {"user": {"transform": "nothing", "items": {"U": {"key": ["a"]}}}}},
    "a number that is too small": {
        "entities": {
            "user": {"collect": {"c": {"of": "t", "by": "b", "first": 0}}, "items": {"U": {"key": ["a"]}}}
        }
    },
    "a pattern without sql": {"access_patterns": {"p": {"query": {"key": ["a"]}, "returns": ["b"]}}},
    "a limit": {"access_patterns": {"p": {**PATTERN, "query": {"key": ["USER#{id}"], "limit": 0}}}},
    "an order": {"access_patterns": {"p": {**PATTERN, "order": "some"}}},
    "a budget": {"access_patterns": {"p": {**PATTERN, "budget": {"p99_ms": 0}}}},
    "a sort condition": {"access_patterns": {"p": {**PATTERN, "query": {"key": ["a", {"like": "b"}]}}}},
}
WRONG_JOBS: dict[str, Any] = {
    "a word that is not known": {"tunning": {}},
    "another version": {"job": 2},
    "no mapping": {"mapping": ""},
    "a name": {"name": "a b"},
    "a number as text": {"tuning": {"workers": "many"}},
    "a switch as number": {"tuning": {"workers": True}},
    "too many": {"tuning": {"workers": 65}},
    "too few": {"tuning": {"page_rows": 0}},
    "a duration": {"tuning": {"lease_s": "soon"}},
    "no duration at all": {"tuning": {"lease_s": 0}},
    "a share": {"reads": {"shadow": {"sample": 1.5}}},
    "a switch": {"target": {"options": {"pitr": "perhaps"}}},
    "a choice": {"target": {"options": {"stream": "images"}}},
    "an endpoint": {"target": {"endpoint": "ftp://a"}},
    "a role": {"target": {"role_arn": "arn:aws:s3:::a"}},
    "a bucket": {"target": {"bucket": "A_B"}},
    "a table's name": {"target": {"table": "a b"}},
    "a list": {"writes": {"direct": "session"}},
    "an event": {"hooks": [{"on": ["never"], "command": ["x"]}]},
    "a hook without a command": {"hooks": [{"on": ["lag_high"]}]},
    "a map of texts": {"target": {"options": {"tags": {"a": {"b": 1}}}}},
    "units": {"target": {"options": {"provisioned": {"read": 0, "write": 1}}}},
    "no source": {"source": ""},
}


@pytest.mark.parametrize("name", WRONG_MAPPINGS)
def test_mapping_refused_by_the_loader_is_refused_by_the_schema(name: str) -> None:
    wrong = {**MAPPING, **WRONG_MAPPINGS[name]}
    assert refused_mapping(wrong), "the loader takes it"
    assert faults("mapping", wrong)
    assert not refused_mapping(MAPPING)
    assert faults("mapping", MAPPING) == []


def refused_mapping(data: Any) -> bool:
    try:
        return bool(examine_mapping(json.dumps(data), "m.yaml").faults)
    except MappingError:
        return True


@pytest.mark.parametrize("name", WRONG_JOBS)
def test_a_job_that_the_loader_refuses_is_refused_by_the_schema(name: str, tmp_path: Path) -> None:
    wrong = {**JOB, **WRONG_JOBS[name]}
    file = tmp_path / "shop.yaml"
    file.write_text(json.dumps(JOB))
    load_job(file, {})
    file.write_text(json.dumps(wrong))
    with pytest.raises(MappingError):
        load_job(file, {})
    assert faults("job", wrong)
    assert faults("job", JOB) == []
