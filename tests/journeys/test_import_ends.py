"""What an import leaves: keys for the relay, options of the table, claims; and imports that were killed or not allowed."""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests import pins
from tests import support_services as services
from tests.journeys.command import Project, project
from tests.journeys.people import MAPPING, TABLES, TUNING
from tests.journeys.small import small_shop

_S3 = {"aws_access_key_id": "local", "aws_secret_access_key": "local", "region_name": "us-east-1"}
OPTIONS = "options: {deletion_protection: true, stream: new_image, tags: {team: shop}, contributor_insights: true}, "


@pytest.fixture
def place(dynamodb_url: str) -> str:
    bucket = f"items-{secrets.token_hex(4)}"
    boto3.client("s3", endpoint_url=dynamodb_url, **_S3).create_bucket(Bucket=bucket)
    return f"s3://{bucket}/items"


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    made = small_shop(tmp_path, dynamodb_url, create=False)
    mapping = tmp_path / "mapping.yaml"
    mapping.write_text(mapping.read_text().replace("type: type", "type: type, ttl: expiresAt"))
    return made


@pytest.fixture
def people(tmp_path: Path, dynamodb_url: str) -> Project:
    """Members whose keys are of two tables, and nicks that nothing proves to be of one member each."""
    url = f"sqlite:///{tmp_path}/shop.db"
    made = project(tmp_path, url, dynamodb_url, f"F{secrets.token_hex(4)}", tuning=TUNING, text=MAPPING)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as source, source:
        source.executescript(TABLES)
        source.execute("INSERT INTO place VALUES (1, 'Here'), (2, 'There')")
        source.execute("INSERT INTO member VALUES ('ann', 'a', 1), ('bob', 'b', 1)")
    return made


def changed(made: Project, *statements: str) -> None:
    with closing(sqlite3.connect(made.folder / "shop.db")) as source, source:
        for statement in statements:
            source.execute(statement)


def test_relay_knows_the_keys_that_no_row_gives_any_longer(people: Project, place: str) -> None:
    job = str(people.job)
    people.done("capture", "install", job)
    people.done("table", "export", job, "--to", place)
    assert people.done("table", "import", job, "--from", place, "--json").data["remembered"] == 2
    changed(
        people, "UPDATE place SET name = 'Elsewhere' WHERE id = 1", "DELETE FROM member WHERE mail = 'bob'"
    )
    people.done("relay", job, "--once")
    people.done("verify", job)
    live = [item for item in people.items() if not str(item["type"]).startswith("_")]
    assert {str(item["PK"]) for item in live} >= {"PLACE#Elsewhere", "NICK#a"}
    assert not {"PLACE#Here", "NICK#b"} & {str(item["PK"]) for item in live}


def test_row_that_takes_a_key_of_the_import_is_reported(people: Project, place: str) -> None:
    job = str(people.job)
    people.done("table", "export", job, "--to", place)
    people.done("table", "import", job, "--from", place)
    changed(people, "UPDATE member SET nick = 'a' WHERE mail = 'bob'")
    found = people.run("backfill", job, "--entity", "member", "--restart")
    assert (found.code, "collision" in found.out) == (1, True), found.err
    with closing(sqlite3.connect(people.folder / ".migrator" / "shop.db")) as journal:
        (tables,) = journal.execute("SELECT count(DISTINCT table_number) FROM migrator_claim").fetchone()
    assert tables == 1


def test_table_has_every_option_that_an_import_lacks(shop: Project, place: str) -> None:
    job = str(shop.job)
    shop.job.write_text(shop.job.read_text().replace("endpoint:", f"{OPTIONS}endpoint:"))
    shop.done("table", "export", job, "--to", place)
    shop.done("table", "import", job, "--from", place)
    assert pins.said(shop.done("table", "check", job).out)
    client = shop.store().client
    table = client.describe_table(TableName=shop.table)["Table"]
    assert table["DeletionProtectionEnabled"] is True
    assert table["StreamSpecification"]["StreamViewType"] == "NEW_IMAGE"
    assert client.list_tags_of_resource(ResourceArn=table["TableArn"])["Tags"] == [
        {"Key": "team", "Value": "shop"}
    ]


def test_a_killed_import_resumes_with_the_same_command(shop: Project, place: str) -> None:
    job = str(shop.job)
    shop.done("capture", "install", job)
    shop.done("table", "export", job, "--to", place)
    process = shop.start("table", "import", job, "--from", place)
    client = shop.store().client
    while shop.table not in client.list_tables()["TableNames"]:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.kill()
    process.communicate()
    shop.done_at_last("table", "import", job, "--from", place)
    arn = client.describe_table(TableName=shop.table)["Table"]["TableArn"]
    assert len(client.list_imports(TableArn=arn)["ImportSummaryList"]) == 1
    assert pins.said(shop.done("backfill", job).err)
    shop.done("relay", job, "--once")
    shop.done("verify", job)


# ── A bucket that is not ours ──


@pytest.fixture
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with services.embedded_dynamodb(tmp_path_factory.mktemp("auth"), AUTH="true") as url:
        yield url


def test_foreign_bucket_is_refused_with_the_missing_right(tmp_path: Path, strict: str) -> None:
    root: dict[str, Any] = {"endpoint_url": strict, "region_name": "us-east-1"}
    root |= {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    boto3.client("s3", **root).create_bucket(Bucket="bucket-of-others")
    iam = boto3.client("iam", **root)
    iam.create_user(UserName="mover")
    allow = {"Effect": "Allow", "Action": "dynamodb:*", "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
    iam.put_user_policy(UserName="mover", PolicyName="table", PolicyDocument=document)
    key = iam.create_access_key(UserName="mover")["AccessKey"]
    shop = small_shop(tmp_path, strict, create=False)
    shop.environment.update(
        {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
    )
    for words in (["table", "export", str(shop.job), "--to"], ["table", "import", str(shop.job), "--from"]):
        refused = shop.run(*words, "s3://bucket-of-others/items")
        assert refused.code == 2
        assert pins.said(refused.err, "iam")
        assert pins.said(refused.err, "needed")
