"""The kinds of findings, and the keys of what `--json` prints."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, get_args

import boto3
import pytest
from syrupy.assertion import SnapshotAssertion

from migrator.main import cli
from migrator.mapping.model.evidence import Move, PatternPhase, State
from migrator.mapping.model.journal import FindingKind
from tests.journeys.command import Project
from tests.journeys.cutover import OTHER, PATTERN, cutover_shop, desk_of
from tests.outside.test_commands import commands

# One worker runs the commands once.
pytestmark = pytest.mark.xdist_group("documents")

_NAMES = frozenset({"customer", "invoice", "Customer", "Invoice", "customer_by_id", "invoices_of_customer"})
"""Keys that come from the mapping: any other mapping has others."""


def test_kinds_of_findings_are_the_pinned_ones(pinned: SnapshotAssertion) -> None:
    assert "\n".join(get_args(FindingKind)) + "\n" == pinned


def _paths(document: Any, path: str = "") -> Iterator[str]:
    """Every key with its place and the type of its value, as `tables[].rows: int`."""
    if isinstance(document, Mapping) and document:
        for key, value in document.items():
            yield from _paths(value, f"{path}.{'<name>' if key in _NAMES else key}")
    elif isinstance(document, list) and document:
        for value in document:
            yield from _paths(value, f"{path}[]")
    else:
        yield f"{path}: {type(document).__name__}"


_SCRIPT = """
mapping check mapping.yaml
mapping check mapping.yaml --source sqlite:///shop.db --invertible
init sqlite:///shop.db --statements mapping.yaml --out proposed.yaml
plan mapping.yaml --source sqlite:///shop.db --region us-east-1 --statements mapping.yaml
mapping diff older.yaml mapping.yaml --source sqlite:///shop.db --region us-east-1
mapping try mapping.yaml --source sqlite:///shop.db --entity customer --key 1
table export JOB --to items
table export JOB --to s3://BUCKET
table import JOB --from s3://BUCKET --dry-run
table create JOB --dry-run
table create JOB
table check JOB
table change JOB
table change JOB --dry-run
export --as terraform JOB
export --as cloudformation JOB
export --as cloudformation JOB --out exported
export --as cdk-ts JOB
export --as cdk-py JOB
export --as iam JOB --region us-east-1
export --as electrodb JOB --out exported
export --as json-schema JOB
export --as python JOB
export --as boto3 JOB
export --as workbench JOB
export --as workbench JOB --out exported
init exported/workbench.json
init exported/workbench.json --out head.yaml
capture install JOB --dry-run
capture install JOB
capture status JOB
recover JOB renamed
doctor JOB
doctor JOB --probe
backfill JOB --dry-run
backfill JOB
migrate-mapping JOB --dry-run
migrate-mapping JOB
look JOB --pattern PATTERN -p id=1
look JOB --pattern PATTERN -p id=1 --explain
look JOB --pk C#1
ui JOB --for 0s
shadow replay JOB --sample 40 --seed 1
verify JOB
status JOB --findings --run 4
relay JOB --dry-run
relay JOB --once
relay JOB --discard-marks
status JOB --findings
pace JOB
pace JOB --max-write-units 200
pace JOB --pause
pace JOB --resume
status JOB
cutover advance JOB PATTERN --dry-run
cutover advance JOB PATTERN --override tried
cutover advance JOB PATTERN --override tried
cutover ramp JOB PATTERN 50 --override tried
cutover watch JOB --once
cutover status JOB
cutover rollback JOB PATTERN
cutover status JOB --history
report JOB
decommission check JOB
clean JOB --row --entity customer --key 3 --dry-run
clean JOB --all-items --dry-run
clean JOB --all-items --yes
clean JOB --tombstones
reverse check JOB
reverse status JOB
reverse verify JOB
reverse stop JOB
capture uninstall JOB --discard-marks
clean JOB --attributes --dry-run
"""
_OLDER = """\
mapping: 1
table: {name: Older, key: [PK, SK], type: type, ttl: expiresAt, indexes: {More: {key: [MorePK]}}}
entities:
  customer: {items: {Customer: {key: ["C#{id}", META], attributes: {alias: name}}}}
  invoice:
    where: {total: [5]}
    items: {Invoice: {key: ["C#{customer_id}", "I#{id:06}"], attributes: {id: id, customer: customer_id}, keep: [total]}}
access_patterns:
  customer_by_id:
    params: {id: integer}
    get: {key: ["C#{id}", META]}
    returns: {customer: {type: Customer, one: true, attributes: [alias]}}
    sql: {customer: "SELECT name AS alias FROM customer WHERE id = :id"}
"""
"""A revision that the mapping differs from in everything that a difference can say."""
_ELSEWHERE = {
    ("examples",),
    ("local",),
    ("reverse", "start"),
}
"""What says the same whatever the job; tests/journeys/test_json.py, test_reverse.py or test_examples.py runs them; tests/exports runs those of grants, which SQLite has not."""


@pytest.fixture(scope="module")
def documents(
    tmp_path_factory: pytest.TempPathFactory, dynamodb_url: str
) -> dict[tuple[str, ...], list[Any]]:
    """By command, all that it printed: of a small shop with one item spoilt, one missing, and one that is ours no more."""
    shop = cutover_shop(tmp_path_factory.mktemp("json"), dynamodb_url)
    (shop.folder / "older.yaml").write_text(_OLDER)
    words_of_s3 = {"aws_access_key_id": "local", "aws_secret_access_key": "local", "region_name": "us-east-1"}
    bucket = f"items-{secrets.token_hex(4)}"
    boto3.client("s3", endpoint_url=dynamodb_url, **words_of_s3).create_bucket(Bucket=bucket)
    by_length = sorted(commands(cli), key=len, reverse=True)
    printed: dict[tuple[str, ...], list[Any]] = {}
    script = _SCRIPT.replace("BUCKET", bucket).replace("PATTERN", PATTERN)
    for line in script.strip().splitlines():
        words = tuple(str(shop.job) if word == "JOB" else word for word in line.split())
        if line.startswith("clean JOB --attributes"):
            _complete(shop)
        ended = shop.run(*words, "--json")
        assert ended.code in (0, 1), (line, ended.err)
        command = next(known for known in by_length if words[: len(known)] == known)
        printed.setdefault(command, []).append(ended.data)
        if line == "backfill JOB":
            _spoil(shop)
    return printed


def _complete(shop: Project) -> None:
    with desk_of(shop) as session:
        for name in (PATTERN, OTHER):
            known = session.phases.all().get(name, PatternPhase(name))
            session.phases.move(Move(name, known.state, State("complete"), "a test"), known.version)


def _spoil(shop: Project) -> None:
    """What every kind of finding and difference needs, so that their keys are printed too."""
    store = shop.store()
    client, table = store.client, shop.table
    client.put_item(
        TableName=table,
        Item={
            "PK": {"S": "C#1"},
            "SK": {"S": "META"},
            "type": {"S": "Customer"},
            "name": {"S": "another"},
            "_src": {"S": "customer"},
        },
    )
    client.delete_item(TableName=table, Key={"PK": {"S": "C#2"}, "SK": {"S": "META"}})
    client.put_item(TableName=table, Item={"PK": {"S": "X"}, "SK": {"S": "Y"}})
    with closing(sqlite3.connect(shop.folder / "shop.db")) as source:
        source.execute("DELETE FROM customer WHERE id = 3")
        source.commit()


@pytest.mark.slow
def test_the_keys_of_every_document_are_the_pinned_ones(
    documents: dict[tuple[str, ...], list[Any]], pinned: SnapshotAssertion
) -> None:
    lines = []
    for command, printed in sorted(documents.items()):
        paths = sorted({path for document in printed for path in _paths(document)})
        lines += [f"$ migrator {' '.join(command)} --json", *(f"    {path}" for path in paths), ""]
    assert "\n".join(lines) == pinned


def test_every_command_is_among_them(documents: dict[tuple[str, ...], list[Any]]) -> None:
    every = set(commands(cli))
    leaves = {words for words in every if not any(other[: len(words)] == words != other for other in every)}
    assert leaves - set(documents) == _ELSEWHERE
