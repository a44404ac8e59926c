"""`migrator look` and `migrator ui`, as a person uses them."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path
from threading import Timer

import pytest

from migrator.mapping.model.table import Item
from tests import pins
from tests.journeys.command import Project
from tests.journeys.small import small_shop

WAIT_S = 120.0


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    made = small_shop(tmp_path, dynamodb_url)
    made.done("backfill", str(made.job))
    return made


def test_a_clean_collection_ends_with_0_and_a_changed_row_with_1(shop: Project) -> None:
    job = str(shop.job)
    clean = shop.done("look", job, "--pk", "C#1").out
    assert "same       Customer" in clean
    assert "same       Invoice" in clean
    with closing(sqlite3.connect(shop.folder / "shop.db")) as service:
        service.execute("UPDATE customer SET name = 'Ada Lovelace' WHERE id = 1")
        service.commit()
    ended = shop.run("look", job, "--pk", "C#1")
    assert ended.code == 1
    assert "different  Customer" in ended.out
    assert "≠  name" in ended.out
    assert "Lovelace" not in ended.out + ended.err
    assert "Ada Lovelace" in shop.run("look", job, "--pk", "C#1", "--show-values").out


def test_json_has_every_attribute_of_both_sides(shop: Project) -> None:
    data = json.loads(shop.done("look", str(shop.job), "--pk", "C#1", "--sk", "META", "--json").out)
    (item,) = data["items"]
    assert (data["clean"], data["counts"], item["state"]) == (True, {"same": 1}, "same")
    assert [one["name"] for one in item["attributes"]] == ["PK", "SK", "name"]
    assert all(one["made"] == one["stored"] and not one["differs"] for one in item["attributes"])


def test_the_log_holds_no_key_and_no_value(shop: Project) -> None:
    ended = shop.run("--verbose", "look", str(shop.job), "--pk", "C#1", "--show-values", "--all")
    assert "Name 1" in ended.out
    assert "Name 1" not in ended.err
    assert "C#1" not in ended.err


def test_wrong_use_ends_with_2_and_a_side_that_is_away_with_3(shop: Project) -> None:
    job = str(shop.job)
    without = shop.run("look", job)
    assert without.code == 2
    assert pins.said(without.err, "look")
    assert pins.said(without.err, "write", job=job)
    assert "write --pk 'C#1'" in shop.run("look", job, "C#1").err
    assert "write -p id=1" in shop.run("look", job, "--pattern", "customer", "id=1").err
    assert "--pk PK" in shop.run("look", job, "--pk", "a", "--pk", "b").err
    assert pins.said(shop.run("look", job, "--pk", "a", "--index", "GSI1").err, "index")
    shop.job.write_text(
        shop.job.read_text()
        .replace(shop.endpoint, "http://127.0.0.1:9")
        .replace("{}", "{give_up_after_s: 1}")
    )
    assert shop.run("look", job, "--pk", "C#1").code == 3
    assert shop.run("ui", job, "--for", "0s").code == 3


def test_ui_serves_both_pages_until_ctrl_c(shop: Project) -> None:
    process = shop.start("ui", str(shop.job), "--json", "--show-keys")
    killed = Timer(WAIT_S, process.kill)
    killed.start()
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        assert "no script" not in fetched(url)
        before = items(shop)
        first = fetched(url)
        assert re.findall(
            r'<bdi>(\w+)</bdi></th><td data-label="Entity"><span class="name">(\w+)', first
        ) == [
            ("Customer", "customer"),
            ("Invoice", "invoice"),
            ("InvoiceById", "invoice"),
        ]
        assert "not stored" not in first
        followed = fetched(f"{url}look?example=1")
        assert re.findall(r'class="type">(\w+)', followed) == ["Invoice"]
        for wrong in ("9", "-1", "x", "9" * 5000):
            with pytest.raises(urllib.error.HTTPError, match="400"):
                fetched(f"{url}look?example={wrong}")
        page = fetched(f"{url}look?pk=C%231")
        assert "2 same" not in page
        assert page.count("<details") == 3
        assert "Name 1" not in page
        assert "backfill" in fetched(f"{url}status")
        with pytest.raises(urllib.error.HTTPError, match="400"):
            fetched(f"{url}look?pk=a&index=GSI9")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            fetched(url.rsplit("/", 2)[0] + "/")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=WAIT_S)
    finally:
        killed.cancel()
        process.kill()
    assert process.returncode == 0, err
    assert "Traceback" not in err
    assert "C#1" not in out + err
    assert items(shop) == before


def test_ui_takes_a_port_and_ends_after_its_time(shop: Project) -> None:
    assert json.loads(shop.done("ui", str(shop.job), "--for", "0s", "--json").out)["url"].startswith(
        "http://127.0.0.1:"
    )
    assert "Ctrl-C ends it" in shop.done("ui", str(shop.job), "--for", "0s").out


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
        return str(answer.read().decode())


def items(shop: Project) -> list[Item]:
    return sorted((item for page in shop.store().scan(0, 1) for item in page.items), key=repr)
