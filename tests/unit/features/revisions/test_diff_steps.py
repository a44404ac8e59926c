"""Which commands `mapping diff` names for a new revision, and in which order."""

from __future__ import annotations

import pytest

from migrator.features.revisions.diff_work import steps_of
from tests.unit.mapping.difference.test_difference import BASE, between, changed

CITY = ("attributes: {city: city}", "attributes: {city: city, mail: email}")
NO_CITY = ("keep: [name], attributes: {city: city}", "keep: [name]")
AT = ("{placed|epoch}", "{placed|iso:s}")
NEW_INDEX = (
    "    GSI1: {key: [GSI1PK, GSI1SK]}\n",
    "    GSI1: {key: [GSI1PK, GSI1SK]}\n    GSI2: {key: [GSI2PK]}\n",
)
CUSTOMER = BASE[BASE.index("  customer:\n    items") : BASE.index("  order:\n    table")]
JOINED = ("    join: {customer: customer_id}\n", "")
NAME = ("          customer_name: customer.name\n", "")
INSTALL, VERIFY = "migrator capture install JOB", "migrator verify JOB --repair"
BACKFILL, CHANGE = "migrator backfill JOB", "migrator table change JOB"


@pytest.mark.parametrize(
    ("edits", "commands"),
    [
        ([], []),
        ([CITY], [INSTALL, f"{BACKFILL} --entity customer", VERIFY]),
        ([NO_CITY], [INSTALL, f"{BACKFILL} --entity customer", VERIFY]),
        ([NEW_INDEX], [CHANGE]),
        (
            [(CUSTOMER, ""), JOINED, NAME],
            [
                *(INSTALL, f"{BACKFILL} --entity order"),
                *("migrator clean JOB --all-items --entity customer", VERIFY),
            ],
        ),
    ],
)
def test_steps_are_in_the_order_that_readers_need(edits: list[tuple[str, str]], commands: list[str]) -> None:
    assert changed(*edits)
    assert [step.command for step in steps_of(between(*edits))] == commands


def test_an_installation_says_whether_more_is_captured() -> None:
    told = {step.what for edit in (CITY, AT) for step in steps_of(between(edit)) if step.command == INSTALL}
    assert told == {"capture what is read now", "make the new revision the newest"}
