"""A job on a server whose own settings would cut answers or refuse statements of ours."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import support_mysql
from tests.journeys.command import Project
from tests.journeys.proposals import here, proposed

__all__ = ["here"]

pytestmark = [pytest.mark.mysql, pytest.mark.mariadb]

SHOP = """
CREATE TABLE shop (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(20) NOT NULL);
CREATE TABLE visit (id INT PRIMARY KEY AUTO_INCREMENT, shop_id INT NOT NULL, FOREIGN KEY (shop_id) REFERENCES shop (id));
INSERT INTO shop (name) SELECT CONCAT('a\\\\', seq) FROM seq_1_to_40;
INSERT INTO visit (shop_id) SELECT id FROM shop
"""
CHANGES = """
SET sql_safe_updates = 0, sql_big_selects = 1;
UPDATE shop SET name = CONCAT(name, '!') WHERE id > 5;
DELETE FROM visit WHERE id > 30;
INSERT INTO visit (shop_id) SELECT id FROM shop
"""


@pytest.mark.parametrize(
    "settings",
    [
        "sql_safe_updates = 1, GLOBAL sql_select_limit = 3, GLOBAL max_join_size = 2",
        "sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,PAD_CHAR_TO_FULL_LENGTH'",
        "sql_mode = 'ORACLE', GLOBAL group_concat_max_len = 4, GLOBAL autocommit = 0",
    ],
)
def test_settings_of_a_server_change_nothing(settings: str, here: Callable[[str], Project]) -> None:
    with support_mysql.own_mariadb() as server, support_mysql.mysql_database(server.url) as url:
        support_mysql.run_script(url, SHOP)
        with support_mysql.connect(server.url) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE journal")
            cursor.execute(f"SET GLOBAL {settings}")
        project = here(url)
        assert proposed(project, "--statements", "none", prove=True).code == 0
        job = project.job.read_text(encoding="utf-8")
        journal = server.url.removesuffix("mysql") + "journal"
        project.job.write_text(f"{job}\njournal: {journal}\n", encoding="utf-8")
        project.prepared("table create", "capture install", "backfill", "verify")
        support_mysql.run_script(url, CHANGES)
        project.prepared("relay --once", "verify", "shadow replay", "status")
