"""The table of races names tests that are there, and all of them."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent


def test_the_table_of_races_names_every_test_and_no_other() -> None:
    tests = {
        name
        for path in HERE.glob("test_*.py")
        if path != Path(__file__)
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    table = (HERE / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(test_\w+)`", table)) == tests
