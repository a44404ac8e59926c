"""What a control item may hold that no writer of ours put there."""

from __future__ import annotations

from typing import Any

import pytest

from migrator.dynamodb.control import control_item, state_of
from migrator.mapping.model.edges import ControlState, Kept
from migrator.mapping.model.table import CONTROL, KeyAttribute, TableDesign
from migrator.runtime.errors import TargetError
from tests import pins

DESIGN = TableDesign("Shop", (KeyAttribute("PK"), KeyAttribute("SK")), "type")
STATE = ControlState(7, "id", {"shop": Kept("j1", {}, frozenset({"order"}), 3)}, 2, is_there=True)


def test_what_is_written_is_read() -> None:
    assert state_of(DESIGN, control_item(DESIGN, STATE)) == STATE


@pytest.mark.parametrize(
    "changed",
    [
        {"_jobs": "shop"},
        {"_jobs": {"shop": {}}},
        {"_jobs": {"shop": {"journal": "j", "phases": [], "direct": [], "direct_run": 1}}},
        {"_version": "two"},
    ],
    ids=str,
)
def test_item_changed_by_hand_is_reported(changed: dict[str, Any]) -> None:
    item = control_item(DESIGN, STATE) | changed
    assert item[DESIGN.type_attribute] == CONTROL
    with pins.refused(TargetError):
        state_of(DESIGN, item)
