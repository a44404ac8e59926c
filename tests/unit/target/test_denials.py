"""AWS's refusals as it words them: the principal, the action and the resource are told, and nothing else of the text.

Source: IAM User Guide, "Troubleshoot access denied error messages"; AWS API references.
"""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from migrator.model.errors import SettingsError
from migrator.target import client as target_client
from migrator.target.failures import denied, in_words
from tests import pins

WHO = "arn:aws:sts::111122223333:assumed-role/migrator/migrator-shop"


def refused(operation: str, code: str, message: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, operation)


CASES = [
    (
        refused(
            "PutItem",
            "AccessDeniedException",
            f"User: {WHO} is not authorized to perform: dynamodb:PutItem on resource:"
            " arn:aws:dynamodb:eu-central-1:111122223333:table/Shop because no identity-based policy allows the"
            " dynamodb:PutItem action",
        ),
        "dynamodb",
        f"{WHO} may not dynamodb:PutItem on arn:aws:dynamodb:eu-central-1:111122223333:table/Shop; allow that action",
    ),
    (
        refused(
            "Query",
            "AccessDeniedException",
            f"User: {WHO} is not authorized to perform: dynamodb:Query on resource:"
            " arn:aws:dynamodb:eu-central-1:111122223333:table/Shop/index/GSI1 with an explicit deny in an"
            " identity-based policy",
        ),
        "dynamodb",
        "table/Shop/index/GSI1; a policy denies it by name",
    ),
    (
        refused(
            "PutObject",
            "AccessDenied",
            f'User: {WHO} is not authorized to perform: s3:PutObject on resource: "arn:aws:s3:::bucket/Shop/1f2e"'
            " because no identity-based policy allows the s3:PutObject action",
        ),
        "s3",
        "may not s3:PutObject on arn:aws:s3:::bucket/Shop/1f2e; allow that action",
    ),
    (
        refused("HeadObject", "403", "Forbidden"),
        "s3",
        "these credentials may not do this; allow s3:GetObject",
    ),
    (refused("PutObject", "AccessDenied", "Access Denied"), "s3", "allow s3:PutObject"),
    (
        refused(
            "GetSecretValue",
            "AccessDeniedException",
            f"User: {WHO} is not authorized to perform: secretsmanager:GetSecretValue on resource: shop/url because"
            " no identity-based policy allows the secretsmanager:GetSecretValue action",
        ),
        "secretsmanager",
        "may not secretsmanager:GetSecretValue on shop/url; allow that action",
    ),
]


@pytest.mark.parametrize(("error", "service", "words"), CASES)
def test_which_principal_may_not_do_what_on_what(error: ClientError, service: str, words: str) -> None:
    assert words in denied(error, service)


def test_an_error_that_denies_nothing_says_nothing() -> None:
    assert denied(refused("PutItem", "ValidationException", "s3cret value"), "dynamodb") == ""


def test_what_else_the_text_holds_is_not_passed_on() -> None:
    error = refused(
        "PutItem", "AccessDeniedException", f"User: {WHO} is not authorized to perform: a:B s3cret"
    )
    assert "s3cret" not in str(in_words(error, "put_item", "Shop", "https://here"))


def test_a_role_that_may_not_be_assumed_names_it() -> None:
    role = "arn:aws:iam::111122223333:role/migrator"
    message = f"User: {WHO} is not authorized to perform: sts:AssumeRole on resource: {role}"
    said = str(in_words(refused("AssumeRole", "AccessDenied", message), "put_item", "Shop", "https://here"))
    assert f"{WHO} may not sts:AssumeRole on {role}" in said
    assert "target.external_id" in said


def test_a_secret_that_may_not_be_read_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Client:
        def get_secret_value(self, **_: object) -> None:
            raise CASES[-1][0]

    class Session:
        def __init__(self, **_: object) -> None:
            pass

        def client(self, *_: object, **__: object) -> Client:
            return Client()

    monkeypatch.setattr("boto3.Session", Session)
    with pins.refused(SettingsError):
        target_client.read_secret("shop/url", region=None, profile=None)
