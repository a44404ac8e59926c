"""What MariaDB has since 10.11, on the server that `.ci/engine mariadb` starts."""

from __future__ import annotations

import secrets
from pathlib import Path

import pymysql
import pytest

from tests.journeys.command import Project, project
from tests.nightly.vectors import assert_its_text_is_what_check_says
from tests.support_mysql import connect, mysql_version, run_script

MAPPING = """\
mapping: 1
table: {name: New, key: [PK, SK], type: type, ttl: expiresAt}
entities:
  t:
    columns: {v_text: {sql: "VEC_ToText(v)", type: text}}
    items: {T: {key: ["T#{id}", M], keep: {except: [v]}, attributes: {v: v_text}}}
"""


def test_the_version_is_the_one_that_is_documented(mysql_url: str) -> None:
    assert (mysql_version(mysql_url) or "").startswith("11.8.")


def test_vector_is_refused_with_a_replacement(mysql_database: str) -> None:
    assert_its_text_is_what_check_says(mysql_database, "VEC_FromText")


@pytest.fixture
def shop(mysql_database: str, tmp_path: Path, dynamodb_url: str) -> Project:
    """Captured and filled."""
    run_script(
        mysql_database,
        "CREATE TABLE t (id uuid PRIMARY KEY DEFAULT uuid(), n int, v vector(2) NOT NULL, VECTOR INDEX (v));"
        "INSERT INTO t (n, v) VALUES (1, VEC_FromText('[1,2]')), (2, VEC_FromText('[3,4]')), (3, VEC_FromText('[5,6]'))",
    )
    made = project(tmp_path, mysql_database, dynamodb_url, f"T{secrets.token_hex(4)}", text=MAPPING)
    return made.prepared("table create", "capture install", "backfill")


def is_followed(shop: Project) -> None:
    shop.done("relay", "--once", str(shop.job))
    shop.done("verify", str(shop.job), "--settle", "0")


def test_vectors_uuids_and_returned_values_are_followed(shop: Project, mysql_database: str) -> None:
    with connect(mysql_database) as service, service.cursor() as cursor:
        cursor.execute("INSERT INTO t (n, v) VALUES (4, VEC_FromText('[7,8]')) RETURNING id")
        ((made,),) = cursor.fetchall()
        cursor.execute(f"REPLACE INTO t VALUES ('{made}', 5, VEC_FromText('[9,9]')) RETURNING n")
        cursor.execute("DELETE FROM t WHERE n = 2 RETURNING id")
        cursor.execute("UPDATE t SET v = VEC_FromText('[0.5,-1]') WHERE n = 3")
    is_followed(shop)
    assert {str(item["v"]) for item in shop.items() if item["type"] == "T"} == {"[1,2]", "[9,9]", "[0.5,-1]"}


def test_row_newer_than_a_snapshot_is_refused_without_loss(shop: Project, mysql_database: str) -> None:
    """innodb_snapshot_isolation, which is on since 11.6."""
    with connect(mysql_database) as service, service.cursor() as cursor:
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        run_script(mysql_database, "UPDATE t SET n = 20 WHERE n = 2")
        with pytest.raises(pymysql.err.OperationalError, match="1020"):
            cursor.execute("UPDATE t SET n = 30")
        service.rollback()
        cursor.execute("UPDATE t SET n = n + 1")
    is_followed(shop)
