"""`migrator export` as people and their CI use it: printed, written, compared, and never over somebody else's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import pins
from tests.exports.shipped import ROOT, Shipped, shipped


@pytest.fixture
def job(tmp_path: Path) -> Shipped:
    return shipped(tmp_path, ROOT / "mappings" / "chinook.yaml", "http://127.0.0.1:1")


def test_what_is_written_is_the_same_until_the_mapping_or_the_job_changes(job: Shipped) -> None:
    asked = ("export", "terraform", "job.yaml", "--out", "infra/table")
    assert job.run(*asked, "--check").out == pins.text("case")
    assert job.run(*asked).out == "infra/table/table.tf: written\n"
    written = (job.folder / "infra/table/table.tf").read_text()
    assert written == job.exported("terraform")
    assert written == pins.text("generated")
    assert (job.run(*asked, "--check").code, job.run(*asked).out) == (
        0,
        pins.text("case-2"),
    )
    path = job.folder / "job.yaml"
    path.write_text(path.read_text().replace("options: {}", "options: {stream: new_image}"))
    checked = job.run(*asked, "--check")
    assert (checked.code, checked.out) == (1, pins.text("differs"))
    assert job.run(*asked).out == "infra/table/table.tf: written anew\n"
    assert 'stream_view_type = "NEW_IMAGE"' in (job.folder / "infra/table/table.tf").read_text()


def test_a_file_of_somebody_else_is_replaced_only_with_force(job: Shipped) -> None:
    mine = job.folder / "table.ts"
    mine.write_bytes(b"export const mine = '\xff';")
    asked = ("export", "cdk-ts", "job.yaml", "--out", ".")
    refused = job.run(*asked)
    assert refused.code == 2
    assert pins.said(refused.err, "add")
    assert mine.read_bytes() == b"export const mine = '\xff';"
    assert job.run(*asked, "--check").out == pins.text("command")
    assert job.run(*asked, "--force").out == "table.ts: replaced\n"
    assert mine.read_text() == job.exported("cdk-ts")


def test_wrong_use_says_what_to_do(job: Shipped) -> None:
    alone = job.run("export", "terraform", "job.yaml", "--check")
    assert (alone.code, alone.err) == (2, pins.text("compares"))
    (job.folder / "file").write_text("")
    below = job.run("export", "terraform", "job.yaml", "--out", "file/below")
    assert below.code == 2
    assert pins.said(below.err, "written")
    assert pins.said(job.run("export", "teraform", "job.yaml").err, "mean")


def test_the_source_need_not_be_known(job: Shipped) -> None:
    path = job.folder / "job.yaml"
    path.write_text(path.read_text().replace("sqlite:///never.db", "${NOWHERE_SET}"))
    assert job.exported("terraform")
    assert job.run("table", "create", "job.yaml", "--dry-run").code == 0
    asked = job.run("backfill", "job.yaml")
    assert (asked.code, pins.said(asked.err)) == (2, True)
