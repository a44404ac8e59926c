"""What a place of exported items is: the same for a folder and for a prefix of a bucket."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from migrator.dynamodb.client import service_client
from migrator.dynamodb.objects import FolderFiles, S3Files
from migrator.mapping.model.edges import Files
from migrator.runtime.errors import TargetError
from tests import pins


@pytest.fixture(params=["folder", "bucket"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    if request.param == "folder":
        return FolderFiles(tmp_path / "items")
    url = request.getfixturevalue("dynamodb_url")
    client = service_client("s3", region=None, profile=None, endpoint=url, connections=2)
    made = S3Files(client, f"bucket-{secrets.token_hex(4)}", "items/")
    made.make_bucket()
    S3Files(client, made.bucket, "items-of-others/").write("data/other", b"not below the prefix")
    return made


def test_what_is_written_is_read_and_replaced(files: Files) -> None:
    assert files.read("data/part") is None
    assert files.sizes_below() == {}
    files.write("data/part", b"one")
    files.write("data/part", b"other")
    files.write("manifest.json", b"{}")
    assert files.read("data/part") == b"other"
    assert files.sizes_below() == {"data/part": 5, "manifest.json": 2}
    assert files.sizes_below("data/") == {"data/part": 5}


@pytest.mark.slow
def test_remove_deletes_only_the_removed(files: Files) -> None:
    names = [f"pages/run-1/{number}" for number in range(1_003)]
    for name in (*names, "data/part"):
        files.write(name, b"")
    assert len(files.sizes_below("pages/")) == 1_003
    files.remove(names)
    files.remove([])
    assert list(files.sizes_below()) == ["data/part"]


@pytest.mark.ministack
def test_a_bucket_that_is_not_there_is_named(dynamodb_url: str) -> None:
    client = service_client("s3", region=None, profile=None, endpoint=dynamodb_url, connections=2)
    files = S3Files(client, "no-such-bucket-here", "")
    with pins.refused(TargetError):
        files.sizes_below()
    assert files.name == "s3://no-such-bucket-here"


def test_a_file_that_is_not_whole_is_none(tmp_path: Path) -> None:
    files = FolderFiles(tmp_path)
    files.write("data/part", b"whole")
    (tmp_path / "data" / "other.unfinished").write_bytes(b"ha")
    assert files.sizes_below() == {"data/part": 5}
    assert (tmp_path / "data" / "part").stat().st_mode & 0o777 == 0o600
