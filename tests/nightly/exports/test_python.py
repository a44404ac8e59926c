"""Generated Python: every item's keys and attributes as the heart makes them, every answer as SQL gives it, and writes."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator.features.exports.model import Model, RowModel, model_of
from migrator.mapping.items.items import items_for
from migrator.mapping.model.table import split_source
from migrator.mapping.patterns.answers import Designs
from migrator.mapping.patterns.params import checked_params, read_params
from migrator.runtime.values import replace
from migrator.stages.patterns.question import Question
from tests.designs.golden import exactly, script_of
from tests.designs.moved import Moved, moved, moved_by
from tests.exports.generated import Generated, asked, expected, generated, items_of, paged, row_model, row_of
from tests.exports.shipped import Shipped
from tests.exports.shop import SHOP, SHOP_QUERIES, SHOP_SCRIPT
from tests.exports.typescript import sqlite_with
from tests.language.conftest import database_on
from tools.pages.golden import DESIGNS, NAMES, Golden, GoldenQuery


@pytest.mark.parametrize("name", NAMES)
def test_generated_module_writes_and_answers_as_designed(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, dynamodb_url: str
) -> None:
    # One test, so that a design is moved once.
    url = database_on("sqlite", request, tmp_path)(script_of(name, "sqlite"))
    with moved(name, url, dynamodb_url) as design:
        _check(design, DESIGNS / f"{name}.yaml", url, tmp_path, dynamodb_url)


def test_a_generated_module_answers_every_pattern_of_the_shop(tmp_path: Path, dynamodb_url: str) -> None:
    url = sqlite_with(tmp_path / "shop.db", SHOP_SCRIPT)
    with moved_by(SHOP, url, dynamodb_url, Golden([], [], {}, 0, SHOP_QUERIES)) as filled:
        assert {query.pattern for query in SHOP_QUERIES} == {*filled.checked.mapping.patterns}
        golden = replace(filled.golden, count=len(filled.items()))
        _check(replace(filled, golden=golden), SHOP, url, tmp_path, dynamodb_url)


def _check(design: Moved, mapping: Path, url: str, folder: Path, endpoint: str) -> None:
    made = generated(_job(design, mapping, folder, url, endpoint), endpoint)
    checked = design.checked
    model = model_of(checked.mapping, checked.read_plans, design.store.design)
    _check_items(design, made, model)
    _check_answers(design, made, model)
    _check_writes(design, made, model)


def _job(design: Moved, mapping: Path, folder: Path, url: str, endpoint: str) -> Shipped:
    table = design.store.design.name
    (folder / "job.yaml").write_text(
        f"job: 1\nmapping: {mapping}\nsource: {{url: '{url}'}}\n"
        f"target: {{table: {table}, endpoint: '{endpoint}'}}\nreads: {{cursor_key: a key of the tests alone}}\n"
    )
    return Shipped(folder, table)


def _rows(design: Moved) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Every row that has items, with its entity."""
    keys: dict[str, set[str]] = defaultdict(set)
    for page in design.store.scan(0, 1):
        for item in page.items:
            name, key = split_source(str(item[design.store.design.source_attribute]))
            keys[name].add(key)
    for entity in design.checked.entities:
        for tree in design.source.read_rows(entity.plan, sorted(keys[entity.name])):
            yield entity, tree


def _check_items(design: Moved, made: Generated, model: Model) -> None:
    own = design.store.design.own_attributes
    counted = 0
    for entity, tree in _rows(design):
        row = row_model(model, entity.name)
        wanted = [
            {name: value for name, value in item.items() if name not in own}
            for item in items_for(entity, tree)
        ]
        for module in (made.through, made.after):
            found = items_of(module, row, row_of(module, entity, row, tree))
            assert exactly(found) == exactly(wanted), (entity.name, tree)
        counted += len(wanted)
    assert counted == design.golden.count


def _check_answers(design: Moved, made: Generated, model: Model) -> None:
    mapping = design.checked.mapping
    designs = Designs([entity.plan for entity in design.checked.entities])
    with made.opened(after=False) as through, made.opened(after=True) as after:
        for query in design.golden.queries:
            pattern = mapping.patterns[query.pattern]
            rows = {part.part.name: part.rows for part in design.ask(query).parts}
            wanted = expected(pattern, rows, Question(mapping, pattern, designs).kinds)
            values = _values(design, query)
            for table in (through, after):
                for at_once in (True, False):
                    found = asked(table, pattern, values, at_once=at_once)
                    assert _ordered(found, pattern.order) == _ordered(wanted, pattern.order), query.name
                described = next(one for one in model.patterns if one.pattern.name == query.pattern)
                if described.pages:
                    pages = {"": paged(table, pattern, values, 2)}
                    assert _ordered(pages, pattern.order) == _ordered(wanted, pattern.order), query.name


def _values(design: Moved, query: GoldenQuery) -> dict[str, Any]:
    pattern = design.checked.mapping.patterns[query.pattern]
    return checked_params(pattern, read_params(pattern, query.params))


def _ordered(answer: dict[str, Any], order: str) -> dict[str, Any]:
    return answer if order == "exact" else {name: sorted(rows, key=repr) for name, rows in answer.items()}


def _check_writes(design: Moved, made: Generated, model: Model) -> None:
    """Every row deleted and put again, and changed to what it is: afterwards nothing differs."""
    with made.opened(after=True, trace=True) as table:
        for entity, tree in _rows(design):
            row = row_model(model, entity.name)
            value = row_of(made.after, entity, row, tree)
            function = row.entity.name
            _check_read_back(made, table, row, value)
            getattr(table, f"change_{function}")(value, value)
            getattr(table, f"delete_{function}")(value)
            getattr(table, f"put_{function}")(value)
    result = design.verify()
    assert result.findings == {}, design.journal.findings(result.run)
    assert result.scanned == design.golden.count


def _check_read_back(made: Generated, table: Any, row: RowModel, value: Any) -> None:
    """The row that is read by its key makes the items that it was read from, unless those have expired."""
    read = getattr(table, f"read_{row.entity.name}", None)
    if read is None:
        return
    found = read(**{name: getattr(value, name) for name in inspect.signature(read).parameters})
    assert found is not None or any(item.expiry for item in row.items)
    if found is not None:
        assert exactly(items_of(made.after, row, found)) == exactly(items_of(made.after, row, value))


S3 = """\
mapping: 1
table: {name: Documents, key: [PK, SK], type: type}
entities:
  document: {items: {Document: {key: ["DOC#{id}", META], keep: [id], attributes: {body: {from: body, to: s3}}}}}
  note: {items: {Note: {key: ["NOTE#{id}", META], attributes: {short: text|upper}}}}
"""


def test_unsupported_module_parts_are_listed_in_one_error(tmp_path: Path) -> None:
    tables = "CREATE TABLE document (id INTEGER PRIMARY KEY, body TEXT); CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT)"
    url = sqlite_with(tmp_path / "documents.db", tables)
    (tmp_path / "mapping.yaml").write_text(S3)
    (tmp_path / "job.yaml").write_text(
        f"job: 1\nmapping: mapping.yaml\nsource: {{url: '{url}'}}\ntarget: {{table: Documents, bucket: documents, region: eu-central-1}}\n"
    )
    job = Shipped(tmp_path, "Documents")
    refused = job.run("export", "--as", "boto3", "job.yaml", "--out", "service")
    assert refused.code == 2
    missing = ("items of 'document': ", "read of a row of 'note': ")
    assert all(sentence in refused.err for sentence in missing), refused.err
    assert "--allow-missing" in refused.err
    assert not (tmp_path / "service").exists()
    written = job.run("export", "--as", "boto3", "job.yaml", "--out", "service", "--allow-missing")
    assert written.code == 0
    assert all(f"left out: {sentence}" in written.err for sentence in missing), written.err
    text = (tmp_path / "service" / "documents_after.py").read_text()
    assert ("def put_note(" in text, "def put_document(" in text) == (True, False)
    assert job.run("export", "--as", "boto3", "job.yaml", "--out", "service", "--dry-run").code == 2
