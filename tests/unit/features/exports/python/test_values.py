"""Functions that generated modules have a copy of."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

import pytest

from migrator.features.exports.python import values as generated
from migrator.features.exports.python.module import readers, restoring
from migrator.features.exports.python.values import RefusedError, _expires
from migrator.mapping.inverse.values import attribute_reader
from migrator.mapping.items.filters import FILTERS
from migrator.mapping.model.facts import Kind
from migrator.mapping.model.table import Value


def test_expiry_in_another_unit_is_refused() -> None:
    milliseconds = 4_000_000_000_000
    assert _expires(milliseconds, 0, "UTC", 1000) == 4_000_000_000
    with pytest.raises(RefusedError):
        _expires(milliseconds, 0, "UTC")
    assert _expires(0, 0, "UTC", zero_is_never=True) is None


def test_every_filter_has_a_function() -> None:
    wanted = {f"_filter_{name}" for name, spec in FILTERS.items() if not spec.null}
    assert wanted == {name for name in vars(generated) if name.startswith("_filter_")}


READ: list[tuple[Kind, Value]] = [
    (Kind("integer"), Decimal("9007199254740993")),
    (Kind("number"), Decimal("-1.50")),
    (Kind("float"), Decimal("0.1")),
    (Kind("text"), "ab  'Ä😀"),
    (Kind("text"), ""),
    (Kind("boolean"), False),
    (Kind("date"), "2024-03-31"),
    (Kind("time"), "04:05:06.700000"),
    (Kind("timestamp"), "2024-03-31T02:30:00.000000"),
    (Kind("timestamp"), "2024-03-31T02:30:00.000000Z"),
    (Kind("uuid"), "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    (Kind("binary"), b"\x00\xff"),
    (Kind("bits"), "0101"),
    (Kind("json"), {"a": [Decimal("1.5"), None, "5"]}),
    (Kind("list", element=Kind("integer")), [Decimal(1), Decimal(2)]),
    (Kind("map", fields=(("a", Kind("text")),)), {"a": "x"}),
    (Kind("plain"), "x"),
]


@pytest.mark.parametrize(
    ("kind", "stored"), READ, ids=[f"{kind.name}-{n}" for n, (kind, _) in enumerate(READ)]
)
def test_generated_readers_read_the_values_of_reverse(kind: Kind, stored: Value) -> None:
    names = vars(generated) | {"stored": stored}
    exec(readers(), names)
    read = eval(restoring(kind, "stored"), names)
    known = attribute_reader(kind)(stored)
    if isinstance(read, float):
        assert repr(read) == str(known)
    else:
        assert (str(read) if isinstance(read, UUID) else read) == known
