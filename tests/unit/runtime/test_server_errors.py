"""Rights that PostgreSQL names without a schema: the GRANT that mends it has one, where the statement says it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from migrator.runtime.server_errors import _qualified


@pytest.mark.parametrize(
    ("name", "statement", "told"),
    [
        ("mark", "SELECT count(*) FROM migrator.mark", "migrator.mark"),
        ("customer", "SELECT id FROM customer", "customer"),
        ("In voice", 'SELECT id FROM "My shop"."In voice"', '"My shop"."In voice"'),
        ("mark_id_seq", "SELECT pg_get_serial_sequence('migrator.mark', 'id')", "migrator.mark_id_seq"),
        ("mark", "SELECT mark.id FROM mark", "mark"),
    ],
)
def test_a_name_is_reported_with_its_schema(name: str, statement: str, told: str) -> None:
    assert _qualified(name, statement) == told


def test_a_connection_that_cannot_be_closed_shows_no_traceback() -> None:
    words = (
        "import logging, migrator.runtime.server_errors",
        "logging.getLogger('sqlalchemy.pool.impl.QueuePool').error('Exception closing', exc_info=ValueError())",
    )
    ended = subprocess.run([sys.executable, "-c", "\n".join(words)], capture_output=True, check=True)
    assert ended.stderr == b""
