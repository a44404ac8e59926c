"""Rights that PostgreSQL names without a schema: the GRANT that mends it has one, where the statement says it."""

from __future__ import annotations

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
