"""What commands print to a person at 80 columns, and that no event of the log is in it."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.journeys.cutover import PATTERN, cutover_shop

COLUMNS = 80
COMMANDS = f"""
mapping check mapping.yaml --source sqlite:///shop.db
plan shop.yaml
mapping diff mapping.yaml mapping.yaml
table create shop.yaml
doctor shop.yaml
capture install shop.yaml
capture status shop.yaml
backfill shop.yaml
relay shop.yaml --once
verify shop.yaml
look shop.yaml --pattern {PATTERN} -p id=1
shadow replay shop.yaml --sample 5 --settle 1
cutover advance shop.yaml {PATTERN}
cutover status shop.yaml
cutover status shop.yaml --history
status shop.yaml
status shop.yaml --all
pace shop.yaml --pause
pace shop.yaml --resume
pace shop.yaml
status shop.yaml --findings
report shop.yaml
reverse check shop.yaml
decommission check shop.yaml
decommission check shop.yaml --explain
migrate-mapping shop.yaml
table check shop.yaml
clean shop.yaml --all-items --dry-run
clean shop.yaml --row --entity customer --key 1 --dry-run
clean shop.yaml --tombstones
"""

VERDICTS = {
    "plan shop.yaml": "fits",
    "mapping diff mapping.yaml mapping.yaml": "the same",
    "capture status shop.yaml": "whole: ",
    "verify shop.yaml": "clean",
    "look shop.yaml --pattern customer_by_id -p id=1": "customer_by_id: the same",
    "shadow replay shop.yaml --sample 5 --settle 1": "clean",
    "report shop.yaml": "not proven",
    "reverse check shop.yaml": "not ready",
    "decommission check shop.yaml --explain": "not yet",
    "table check shop.yaml": "table ",
}
"""How the last line of a command that judges begins."""


def test_output_fits_80_columns_without_events_of_the_log(tmp_path: Path, dynamodb_url: str) -> None:
    shop = cutover_shop(tmp_path, dynamodb_url)
    shop.environment["COLUMNS"] = str(COLUMNS)
    wide, events = {}, []
    for command in COMMANDS.strip().splitlines():
        words = [
            re.sub(r"\b(shop|mapping)\.(yaml|db)", rf"{tmp_path}/\1.\2", word) for word in command.split()
        ]
        ended = shop.run(*words)
        assert ended.code in (0, 1), f"{command}: {ended.err}"
        lines = f"{ended.out}\n{ended.err}".splitlines()
        # A `command` stays on one line, so that it can be copied; the paths of a test are long.
        if too_wide := [
            line for line in lines if len(line) > COLUMNS and "`" not in line and str(tmp_path) not in line
        ]:
            wide[command] = too_wide
        if command in VERDICTS:
            # So a command with them is a line of its own, below the verdict that names it.
            said = ended.out.splitlines()
            last = said[-2] if said[-1].startswith("`migrator ") else said[-1]
            assert last.startswith(VERDICTS[command]), command
        events += [line for line in lines if "[info" in line or "room=" in line]
        if command.startswith("backfill"):
            with closing(sqlite3.connect(tmp_path / "shop.db")) as source:
                source.execute("UPDATE customer SET name = 'Ada' WHERE id = 3")
                source.commit()
    assert (wide, events) == ({}, [])
