from __future__ import annotations

from typing import Any

from migrator.dynamodb.answers import consumed_by_meter, consumed_units
from migrator.dynamodb.throttle import TABLE

PART = {
    "TableName": "T",
    "CapacityUnits": 9.0,
    "Table": {"CapacityUnits": 3.0},
    "LocalSecondaryIndexes": {"Local": {"CapacityUnits": 2.0}},
    "GlobalSecondaryIndexes": {"GSI1": {"CapacityUnits": 3.0}, "GSI2": {"CapacityUnits": 1.0}},
}


def test_local_index_uses_table_capacity_and_global_its_own() -> None:
    assert consumed_by_meter({"ConsumedCapacity": PART}) == {TABLE: 5.0, "GSI1": 3.0, "GSI2": 1.0}
    assert consumed_by_meter({"ConsumedCapacity": [PART, PART]}) == {TABLE: 10.0, "GSI1": 6.0, "GSI2": 2.0}
    assert consumed_units({"ConsumedCapacity": [PART]}) == 9.0


def test_an_endpoint_may_say_little_or_nothing() -> None:
    assert consumed_by_meter({"ConsumedCapacity": [{"TableName": "T", "CapacityUnits": 4.0}]}) == {TABLE: 4.0}
    answers: list[dict[str, Any]] = [
        {},
        {"ConsumedCapacity": []},
        {"ConsumedCapacity": None},
        {"ConsumedCapacity": [None]},
    ]
    for answer in answers:
        assert consumed_by_meter(answer) is None
        assert consumed_units(answer) == 0.0
