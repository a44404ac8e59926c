"""Models of NoSQL Workbench: written, read, and what is wrong in them named."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from migrator.features.init.workbench import head_of_model
from tests import pins
from tests.exports.shipped import MAPPINGS, ROOT
from tests.journeys.in_process import Ended, run_here

BOOKMARKS = Path(__file__).with_name("bookmarks_model.json")
"""The model of the article that customer_bookmark.yaml was made from, as Workbench writes it."""
TYPE = "type"
"""An attribute that every item of ours has, and the article's have not."""
DESIGNS = [path for path in MAPPINGS if path.with_suffix(".sql").exists()]


def run(folder: Path, *words: str) -> Ended:
    return run_here(words, folder, dict(os.environ))


def job_of(folder: Path, mapping: Path, script: str) -> None:
    """A job whose source is made by the script."""
    with sqlite3.connect(folder / "source.db") as source:
        source.executescript(script)
    target = "{region: eu-central-1}"
    text = f"job: 1\nmapping: {mapping}\nsource: {{url: 'sqlite:///{folder}/source.db'}}\ntarget: {target}\n"
    (folder / "job.yaml").write_text(text)


def exported(folder: Path, *words: str) -> dict[str, Any]:
    ended = run(folder, "export", "--as", "workbench", "job.yaml", *words)
    assert ended.code == 0, ended.err
    found: dict[str, Any] = json.loads(ended.out)
    return found


def shown(model: dict[str, Any]) -> dict[str, Any]:
    """What a model says of its table, without samples."""
    table = model["DataModel"][0]
    facets = {
        facet["FacetName"]: (
            facet["KeyAttributeAlias"],
            sorted(name for name in facet["NonKeyAttributes"] if name != TYPE),
        )
        for facet in table["TableFacets"]
    }
    kept = ("TableName", "KeyAttributes", "GlobalSecondaryIndexes", "BillingMode")
    return {**{name: table[name] for name in kept}, "facets": facets}


def test_the_model_of_the_article_goes_both_ways(tmp_path: Path) -> None:
    assert run(tmp_path, "init", str(BOOKMARKS), "--out", "head.yaml").code == 0
    job_of(
        tmp_path,
        tmp_path / "head.yaml",
        "CREATE TABLE customer (customerId TEXT PRIMARY KEY NOT NULL, type TEXT NOT NULL, email TEXT, fullName TEXT,"
        " userPreferences TEXT, creationDate TEXT, updateDate TEXT);"
        "CREATE TABLE bookmark (customerId TEXT NOT NULL, url TEXT NOT NULL, folder TEXT, title TEXT,"
        " description TEXT, creationDate TEXT, updateDate TEXT, PRIMARY KEY (customerId, url));",
    )
    again = exported(tmp_path)
    assert shown(again) == shown(json.loads(BOOKMARKS.read_text()))
    (tmp_path / "again.json").write_text(json.dumps(again))
    second = run(tmp_path, "init", "again.json")
    first = (tmp_path / "head.yaml").read_text()
    # The first line names the file.
    assert second.out.splitlines()[1:] == first.splitlines()[1:]


@pytest.mark.parametrize("mapping", DESIGNS, ids=lambda path: path.stem)
def test_every_design_has_a_model_or_a_reason_without(mapping: Path, tmp_path: Path) -> None:
    job_of(tmp_path, mapping, mapping.with_suffix(".sql").read_text())
    ended = run(tmp_path, "export", "--as", "workbench", "job.yaml")
    if ended.code == 2:
        assert pins.said(ended.err), ended.err
        assert "is a local one" in ended.err or "several attributes" in ended.err
        return
    table = json.loads(ended.out)["DataModel"][0]
    assert [facet["FacetName"] for facet in table["TableFacets"] if not facet["TableData"]] == []
    names = {each["AttributeName"] for each in table["NonKeyAttributes"]}
    names |= {each["AttributeName"] for each in table["KeyAttributes"].values()}
    items = [item for facet in table["TableFacets"] for item in facet["TableData"]]
    assert {name for item in items for name in item} <= names
    assert run(tmp_path, "export", "--as", "workbench", "job.yaml").out == ended.out
    (tmp_path / "model.json").write_text(ended.out)
    head = run(tmp_path, "init", "model.json")
    assert (head.code, head.err) == (0, "")


def test_samples_are_real_on_request_and_redacted_ones_masked(tmp_path: Path) -> None:
    mapping = ROOT / "mappings" / "designs" / "customer_bookmark.yaml"
    text = mapping.read_text().replace(
        "returns: [customerId, fullName]", "returns: [customerId, fullName]\n    redact: [fullName]"
    )
    (tmp_path / "mapping.yaml").write_text(text)
    job_of(tmp_path, tmp_path / "mapping.yaml", mapping.with_suffix(".sql").read_text())
    made_up = json.dumps(exported(tmp_path))
    assert "shirley@example.net" not in made_up
    real = json.dumps(exported(tmp_path, "--show-values"))
    assert "shirley@example.net" in real
    assert "Shirley" not in real


def test_model_is_written_and_never_over_another_file(tmp_path: Path) -> None:
    mapping = ROOT / "mappings" / "designs" / "customer_bookmark.yaml"
    job_of(tmp_path, mapping, mapping.with_suffix(".sql").read_text())
    words = ("export", "--as", "workbench", "job.yaml", "--out", "made")
    assert run(tmp_path, *words, "--dry-run").code == 1
    assert run(tmp_path, *words).code == 0
    assert run(tmp_path, *words, "--dry-run").code == 0
    out = ("init", str(BOOKMARKS), "--out", "head.yaml")
    assert [run(tmp_path, *out).code, run(tmp_path, *out).code, run(tmp_path, *out, "--force").code] == [
        0,
        2,
        0,
    ]


def changed(change: Callable[[dict[str, Any]], Any]) -> str:
    model = json.loads(BOOKMARKS.read_text())
    change(model)
    return json.dumps(model)


def table_of(model: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = model["DataModel"][0]
    return found


@pytest.mark.parametrize("version", ["1.0", "3.0"])
def test_a_model_of_each_version_is_read(version: str) -> None:
    text = changed(lambda model: model["ModelMetadata"].update(Version=version))
    assert head_of_model(text, "m.json", None) == head_of_model(BOOKMARKS.read_text(), "m.json", None)


WRONG = {
    "no json": ("{", "line 1: not JSON"),
    "empty": ("", "line 1: not JSON"),
    "deep": ("[" * 200_000, "nested too deeply"),
    "long number": ('{"a": ' + "9" * 5000 + "}", "not JSON"),
    "a list": ("[]", "not a model of NoSQL Workbench"),
    "another version": (
        changed(lambda model: model["ModelMetadata"].update(Version="2.0")),
        'version "2.0"; migrator reads versions 1.0 and 3.0',
    ),
    "no version": ('{"DataModel": []}', "no version"),
    "no tables": (changed(lambda model: model.update(DataModel=[])), "no tables"),
    "tables of another kind": (
        changed(lambda model: model.update(DataModel=[1])),
        "DataModel: not a list of objects",
    ),
    "two tables": (changed(lambda model: model["DataModel"].append(table_of(model))), "name it with --table"),
    "name of a table": (
        changed(lambda model: table_of(model).update(TableName="a b")),
        'TableName: "a b" is not a valid table name',
    ),
    "long name": (changed(lambda model: table_of(model).update(TableName="a" * 10_000)), "TableName: "),
    "no key": (
        changed(lambda model: table_of(model).update(KeyAttributes={})),
        "PartitionKey: it does not name an attribute",
    ),
    "type of a key": (
        changed(lambda model: table_of(model)["KeyAttributes"]["SortKey"].update(AttributeType="BOOL")),
        'KeyAttributes.SortKey.AttributeType: "BOOL" is not one of S, N, B',
    ),
    "type that is a list": (
        changed(lambda model: table_of(model)["KeyAttributes"]["SortKey"].update(AttributeType=["S"])),
        "an object or a list is not one of S, N, B",
    ),
    "index": (
        changed(lambda model: table_of(model)["GlobalSecondaryIndexes"][1].update(IndexName="x" * 300)),
        "GlobalSecondaryIndexes[1].IndexName",
    ),
    "projection": (
        changed(
            lambda model: table_of(model)["GlobalSecondaryIndexes"][0].update(
                Projection={"ProjectionType": {}}
            )
        ),
        "not one of ALL, KEYS_ONLY, INCLUDE",
    ),
    "facet without a name": (
        changed(lambda model: table_of(model)["TableFacets"][0].update(FacetName="\n")),
        "TableFacets[0].FacetName",
    ),
    "two facets": (
        changed(lambda model: table_of(model)["TableFacets"][0].update(FacetName="Bookmark")),
        'two facets are called "Bookmark"',
    ),
    "alias": (
        changed(
            lambda model: table_of(model)["TableFacets"][0]["KeyAttributeAlias"].update(
                SortKeyAlias="a\u0000b"
            )
        ),
        "KeyAttributeAlias.SortKeyAlias",
    ),
    "open brace": (
        changed(
            lambda model: table_of(model)["TableFacets"][0]["KeyAttributeAlias"].update(SortKeyAlias="{a")
        ),
        "cannot be used in a mapping",
    ),
    "attributes": (
        changed(lambda model: table_of(model).update(NonKeyAttributes=[{"AttributeName": 1}, {}])),
        "NonKeyAttributes: 2 attribute names",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_model_fault_is_reported_with_its_place(case: str, tmp_path: Path) -> None:
    text, said = WRONG[case]
    (tmp_path / "model.json").write_text(text)
    ended = run(tmp_path, "init", "model.json")
    assert (ended.code, ended.out) == (2, "")
    assert said in " ".join(ended.err.split())
    assert "model.json" in ended.err
    assert "Traceback" not in ended.err
    assert len(ended.err) < 2000


def test_every_fault_and_unreadable_file_is_reported_at_once(tmp_path: Path) -> None:
    def wrong(model: dict[str, Any]) -> None:
        table_of(model).update(TableName="?")
        table_of(model)["KeyAttributes"]["SortKey"].update(AttributeType="X")

    (tmp_path / "model.json").write_text(changed(wrong))
    said = run(tmp_path, "init", "model.json").err
    assert "TableName" in said
    assert "SortKey" in said
    (tmp_path / "model.json").write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in run(tmp_path, "init", "model.json").err
    (tmp_path / "model.json").write_bytes(b" " * (8 * 2**20 + 1))
    assert "larger than 8 MiB" in run(tmp_path, "init", "model.json").err
    (tmp_path / "folder.json").mkdir()
    for absent in ("none.json", "folder.json"):
        ended = run(tmp_path, "init", absent)
        assert (ended.code, pins.said(ended.err)) == (2, True)


def test_one_table_of_several_is_named(tmp_path: Path) -> None:
    def two(model: dict[str, Any]) -> None:
        model["DataModel"].append({**table_of(model), "TableName": "Other"})

    (tmp_path / "model.json").write_text(changed(two))
    assert "name: Other" in run(tmp_path, "init", "model.json", "--table", "Other").out
    assert pins.said(run(tmp_path, "init", "model.json", "--table", "No").err)
