"""Buckets that are made for an S3 on this machine."""

from __future__ import annotations

import secrets

import pytest

from migrator.dynamodb.client import service_client
from migrator.dynamodb.objects import S3Objects


@pytest.mark.parametrize("region", [None, "us-east-1", "eu-central-1"])
def test_a_bucket_is_made_in_the_jobs_region_once(dynamodb_url: str, region: str | None) -> None:
    client = service_client("s3", region=region, profile=None, endpoint=dynamodb_url, connections=2)
    objects = S3Objects(client, f"bucket-{secrets.token_hex(4)}", "large/")
    objects.make_bucket()
    objects.make_bucket()
    objects.put({"name": b"value"})
    assert objects.sizes(["name", "other"]) == {"name": 5}
