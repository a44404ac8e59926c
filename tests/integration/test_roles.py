"""Roles against an endpoint that checks signatures and policies: assumed, renewed, refused, run out."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config

from migrator.dynamodb.admin import DynamoTableAdmin
from migrator.dynamodb.client import AssumedRole, dynamodb_client, service_client
from migrator.dynamodb.objects import S3Objects
from migrator.dynamodb.store import DynamoStore
from migrator.features.probe.work import ASSUMPTIONS, Probe, result_of
from migrator.mapping.model.table import Index, KeyAttribute, TableDesign
from migrator.runtime.errors import StoppedError, TargetError
from migrator.runtime.values import replace
from tests import pins
from tests import support_services as services
from tests.support_fence import no_fence
from tests.support_items import put_items
from tests.support_lanes import BOTOCORE, EACH_LANE, lane_of

# One worker starts the endpoint once.
pytestmark = pytest.mark.xdist_group("roles")

REGION = "us-east-1"
ROLE = "arn:aws:iam::000000000000:role/migrator"
TRUST = {
    "Effect": "Allow",
    "Principal": {"AWS": "arn:aws:iam::000000000000:user/deployer"},
    "Action": "sts:AssumeRole",
    "Condition": {"StringEquals": {"sts:ExternalId": "the-shop"}},
}


def policy(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """MiniStack with AUTH=true; a user that may do nothing but assume a role that may do all with DynamoDB."""
    with services.embedded_dynamodb(tmp_path_factory.mktemp("auth"), AUTH="true") as url:
        yield url


@pytest.fixture(scope="module")
def user(endpoint: str) -> dict[str, str]:
    root = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": REGION}
    iam = boto3.client("iam", endpoint_url=endpoint, **root)
    iam.create_user(UserName="deployer")
    allow = {"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": "*"}
    iam.put_user_policy(UserName="deployer", PolicyName="assume", PolicyDocument=policy(allow))
    iam.create_role(RoleName="migrator", AssumeRolePolicyDocument=policy(TRUST))
    everything = {"Effect": "Allow", "Action": "dynamodb:*", "Resource": "*"}
    iam.put_role_policy(RoleName="migrator", PolicyName="table", PolicyDocument=policy(everything))
    key = iam.create_access_key(UserName="deployer")["AccessKey"]
    return {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}


@pytest.fixture(params=[*EACH_LANE, pytest.param(BOTOCORE, marks=pytest.mark.nightly)])
def lane(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The endpoint checks signatures, whoever made them, and whatever they went through."""
    with lane_of(request.param, monkeypatch) as name:
        yield name


@pytest.fixture(autouse=True)
def environment(user: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    for name, value in user.items():
        monkeypatch.setenv(name, value)


def design() -> TableDesign:
    return TableDesign(f"T{secrets.token_hex(6)}", (KeyAttribute("PK"), KeyAttribute("SK")), "type")


def client(endpoint: str, role: AssumedRole | None) -> Any:
    return dynamodb_client(region=REGION, profile=None, endpoint=endpoint, role=role)


@pytest.mark.usefixtures("lane")
def test_the_role_may_what_the_user_may_not(endpoint: str) -> None:
    made = design()
    with pytest.raises(TargetError, match="AccessDenied"):
        DynamoTableAdmin(client(endpoint, None)).create(made)
    acting = client(endpoint, AssumedRole(ROLE, "migrator-shop", "the-shop"))
    assert DynamoTableAdmin(acting).create(made).status == "ACTIVE"
    assert put_items(DynamoStore(acting, made, no_fence), [{"PK": "P", "SK": "S", "type": "T"}]).items == 1


READS = ["DescribeTable", "DescribeTimeToLive", "GetItem", "Query", "BatchGetItem", "Scan"]
WRITES = ["BatchWriteItem", "PutItem", "DeleteItem", "UpdateItem", "PartiQLInsert"]


@pytest.mark.parametrize("without", ["", *WRITES, "Query"])
def test_a_probe_finds_the_one_permission_that_is_missing(
    endpoint: str, user: dict[str, str], without: str
) -> None:
    index = Index("GSI1", (KeyAttribute("GSI1PK"),))
    made = replace(design(), indexes=(index,))
    DynamoTableAdmin(client(endpoint, AssumedRole(ROLE, "migrator-shop", "the-shop"))).create(made)
    name = f"some{without}"
    root = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": REGION}
    iam = boto3.client("iam", endpoint_url=endpoint, **root)
    iam.create_role(RoleName=name, AssumeRolePolicyDocument=policy(TRUST))
    allowed = [f"dynamodb:{action}" for action in [*READS, *WRITES] if action != without]
    if without != "PartiQLInsert":
        # What MiniStack asks for where AWS asks for PartiQLInsert.
        allowed.append("dynamodb:BatchExecuteStatement")
    allow = {"Effect": "Allow", "Action": allowed, "Resource": "*"}
    iam.put_role_policy(RoleName=name, PolicyName="some", PolicyDocument=policy(allow))
    acting = client(endpoint, AssumedRole(ROLE.replace("migrator", name), "migrator-shop", "the-shop"))
    probes = DynamoTableAdmin(acting).probe(made, write=True)
    assert {(one.action, one.index) for one in probes if one.refused} == {
        *((without, where) for where in ("", "GSI1") if without and (not where or without == "Query")),
        # What could not be taken away again is not put.
        *([("PartiQLInsert", "")] if without == "DeleteItem" else []),
    }
    for one in probes:
        if one.refused and one.action == without and without != "PartiQLInsert":
            arn = "arn:aws:sts::000000000000:assumed-role/"
            assert f"{arn}{name}/" in one.refused
            assert pins.said(one.refused, "dynamodb", without=without)
            assert pins.said(one.refused, "action")
    assert ("Query", "GSI1") in {(one.action, one.index) for one in probes}
    whole = client(endpoint, AssumedRole(ROLE, "migrator-shop", "the-shop"))
    assert whole.scan(TableName=made.name)["Count"] == 0


@pytest.mark.parametrize("without", ["", "ListBucket", "GetObject", "PutObject", "DeleteObject"])
def test_probe_of_the_bucket_finds_missing_rights(endpoint: str, user: dict[str, str], without: str) -> None:
    root = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": REGION}
    name, bucket = f"objects{without}".lower(), f"b{secrets.token_hex(6)}"
    made = boto3.client("s3", endpoint_url=endpoint, **root)
    made.create_bucket(Bucket=bucket)
    iam = boto3.client("iam", endpoint_url=endpoint, **root)
    iam.create_role(RoleName=name, AssumeRolePolicyDocument=policy(TRUST))
    wanted = ("GetObject", "PutObject", "DeleteObject", "ListBucket")
    allow = {"Effect": "Allow", "Action": [f"s3:{one}" for one in wanted if one != without], "Resource": "*"}
    iam.put_role_policy(RoleName=name, PolicyName="some", PolicyDocument=policy(allow))
    role = AssumedRole(ROLE.replace("migrator", name), "migrator-shop", "the-shop")
    acting = service_client("s3", region=REGION, profile=None, endpoint=endpoint, role=role)
    probes = S3Objects(acting, bucket, "shop/").probe(write=True)
    assert [one.action for one in probes if one.refused] == ([without] if without else [])
    for one in probes:
        if one.refused:
            # The answer to a HEAD has no body that could say who may not do it.
            of_head = f"may not do this; allow s3:{without} to the role"
            named = f"assumed-role/{name}/migrator-shop may not s3:{without}; allow that action"
            assert (of_head if without == "GetObject" else named) in one.refused
    left = made.list_objects_v2(Bucket=bucket).get("KeyCount", 0)
    assert left == (1 if without == "DeleteObject" else 0)


def test_missing_list_right_leaves_the_read_right_untested(endpoint: str, user: dict[str, str]) -> None:
    root = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": REGION}
    bucket = f"b{secrets.token_hex(6)}"
    boto3.client("s3", endpoint_url=endpoint, **root).create_bucket(Bucket=bucket)
    # A role that may do nothing in S3: AWS answers who may only not list in the same way.
    role = AssumedRole(ROLE, "migrator-shop", "the-shop")
    acting = service_client("s3", region=REGION, profile=None, endpoint=endpoint, role=role)
    listed, read = S3Objects(acting, bucket, "shop/").probe(write=False)
    assert (listed.action, listed.tried, bool(listed.refused)) == ("ListBucket", True, True)
    assert (read.action, read.tried, "not tried" in read.refused) == ("GetObject", False, True)


@pytest.mark.parametrize("external_id", [None, "another"])
def test_refused_role_is_reported_with_a_place_to_look(endpoint: str, external_id: str | None) -> None:
    with pins.refused(TargetError):
        DynamoTableAdmin(client(endpoint, AssumedRole(ROLE, "migrator-shop", external_id))).state(design())


@pytest.mark.usefixtures("lane")
def test_credentials_are_renewed_before_they_run_out(endpoint: str) -> None:
    made = design()
    acting = client(endpoint, AssumedRole(ROLE, "migrator-shop", "the-shop", life_s=2))
    DynamoTableAdmin(acting).create(made)
    store = DynamoStore(acting, made, no_fence)
    for number in range(3):
        time.sleep(1.2)
        put_items(store, [{"PK": f"P{number}", "SK": "S", "type": "T"}])
    assert len([item for page in store.scan(0, 1) for item in page.items]) == 3


def test_credentials_expiring_in_a_run_stop_it_and_it_can_resume(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sts = boto3.client(
        "sts", endpoint_url=endpoint, region_name=REGION, config=Config(parameter_validation=False)
    )
    words: Any = {"RoleArn": ROLE, "RoleSessionName": "short", "ExternalId": "the-shop", "DurationSeconds": 2}
    keys = sts.assume_role(**words)["Credentials"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", keys["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", keys["SecretAccessKey"])
    monkeypatch.setenv("AWS_SESSION_TOKEN", keys["SessionToken"])
    made = design()
    fixed = client(endpoint, None)
    DynamoTableAdmin(fixed).create(made)
    store = DynamoStore(fixed, made, no_fence)
    put_items(store, [{"PK": "P", "SK": "S", "type": "T"}])
    time.sleep(2.5)
    with pins.refused(StoppedError):
        put_items(store, [{"PK": "Q", "SK": "S", "type": "T"}])


@pytest.fixture
def probing(endpoint: str) -> Probe:
    """A table of its own, and clients that act as the role."""
    name = f"T{secrets.token_hex(6)}"
    all_of_it = client(endpoint, AssumedRole(ROLE, "migrator-shop", "the-shop"))
    DynamoTableAdmin(all_of_it).create(TableDesign(name, (KeyAttribute("pk"), KeyAttribute("sk")), "type"))

    def acting(document: str) -> Any:
        return client(endpoint, AssumedRole(ROLE, "migrator-shop", "the-shop", policy=document))

    return Probe(all_of_it, None, name, lambda wait_s: None, acting=acting, local=True)


RIGHTS = next(one for one in ASSUMPTIONS if one.name == "rights of each role's policy")


def test_action_missing_from_an_exported_policy_is_denied(probing: Probe) -> None:
    result = result_of(RIGHTS, probing)
    assert (result.state, result.seen) == ("holds", "as in each policy")


def test_the_server_asks_another_right_for_an_insert_than_aws(probing: Probe) -> None:
    """AWS asks for PartiQLInsert (Service Authorization Reference, "Amazon DynamoDB")."""
    alone = next(one for one in ASSUMPTIONS if one.name.startswith("an insert with"))
    result = result_of(alone, probing)
    assert (result.state, result.seen) == ("differs", "AccessDeniedException")


def test_a_policy_that_allows_or_denies_otherwise_is_found(probing: Probe) -> None:
    acting = probing.acting
    assert acting is not None

    def other(document: str) -> Any:
        return acting(document.replace("dynamodb:Scan", "dynamodb:DeleteItem"))

    result = result_of(RIGHTS, replace(probing, acting=other))
    assert result.state == "differs"
    assert "backfill: Scan denied; backfill: DeleteItem taken" in result.seen


def test_a_role_that_is_held_to_no_policy_is_found_on_aws(probing: Probe) -> None:
    def all_of_it(_document: str) -> Any:
        return probing.client

    made = replace(probing, acting=all_of_it, local=False)
    result = result_of(RIGHTS, made)
    assert (result.state, "report: PutItem taken" in result.seen) == ("differs", True)
    assert result_of(RIGHTS, replace(made, local=True)).state == "not there"
