"""Sources of the designs as SQL of an engine, and forms in which golden items are compared."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from migrator.mapping.items.wire import encode_item
from migrator.mapping.model.table import Item
from tests import support_mysql
from tools.pages.golden import DESIGNS


def script_of(name: str, engine: str) -> str:
    """The design's source as SQL of the engine."""
    script = (DESIGNS / f"{name}.sql").read_text(encoding="utf-8")
    # What the others call a timestamp has no zone; MariaDB's has one, and its DATETIME has none.
    return in_mysql(re.sub(r"\bTIMESTAMP\b", "DATETIME", script)) if engine == "mariadb" else script


def in_mysql(text: str) -> str:
    """The text in the types of MySQL, if that is the server in MariaDB's place: no UUID, and CAST takes CHAR alone."""
    if support_mysql.stands_for_mariadb():
        text = text.replace(" UUID ", " CHAR(36) ").replace(" AS VARCHAR(", " AS CHAR(")
    return text


def exactly(items: Sequence[Item]) -> list[dict[str, Any]]:
    """Items in a form in which equal means the same type, too (in Python 1 == True)."""
    return [encode_item(item) for item in items]


def rows_exactly(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Rows in such a form."""
    return [
        list(encode_item({str(number): value for number, value in enumerate(row)}).items()) for row in rows
    ]
