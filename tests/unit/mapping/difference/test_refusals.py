"""Two revisions of which writers cannot be at work on one table are refused."""

from __future__ import annotations

import pytest

from tests import pins
from tests.unit.mapping.difference.test_difference import (
    BASE,
    changed,
    refused,
    unasked,
)


def _with_key(key: str) -> str:
    return changed(('key: ["ORDER#{id}", META]\n        GSI1', f"key: [{key}]\n        GSI1"), text=unasked())


@pytest.mark.parametrize(
    ("key", "is_refused"),
    [
        ('"ORDER#{id:08}", META', False),  # the same row, however its number is padded
        ('"ORDER#{id}", INFO', False),
        ('"PURCHASE#{id}", META', False),
        ('"ORDER#{customer_id}#{id}", META', False),  # another number of separators
        ('"ORDER#{number}", META', True),  # where the texts end is not known
        ('"ORDER#{number|escape}", META', True),  # number 5 of one row, id 5 of another
        ('"ORDER#{customer_id}", META', True),
        ('"CUSTOMER#{id}", META', True),  # of another entity, and unchanged there: no other revision's key
        ('"ORDER#{id}", "TICKET#{id}"', True),
    ],
)
def test_keys_that_both_revisions_could_claim(key: str, is_refused: bool) -> None:
    found = [fault for fault in refused(unasked(), _with_key(key)) if not fault.warning]
    if key.startswith('"CUSTOMER'):
        assert found == [], "the checker of one mapping warns of it"
        return
    if key.endswith('"TICKET#{id}"'):
        assert found == [], "the row is named by what both begin with"
        return
    assert bool(found) is is_refused
    if is_refused:
        assert found[0].where == "entities.order.items.Order.key"
        assert pins.said(found[0].what)


def test_values_that_cannot_be_told_apart_in_a_key_name_no_row() -> None:
    """Row 1 of customer 23 and row 12 of customer 3."""
    old, new = (_with_key(f'"ORDER#{{{id_}}}{{customer_id}}", META') for id_ in ("id", "id:02"))
    assert [fault.where for fault in refused(old, new)] == ["entities.order.items.Order.key"]


def test_an_entity_of_another_name_under_the_same_keys() -> None:
    new = unasked().replace("  order:\n", "  purchase:\n")
    found = [fault for fault in refused(unasked(), new) if not fault.warning]
    assert {fault.where for fault in found} == {
        "entities.purchase.items.Order.key",
        "entities.purchase.items.Ticket.key",
    }


def test_without_a_source_keys_are_doubted_not_refused() -> None:
    (fault,) = refused(unasked(), _with_key('"ORDER#{id:08}", META'), planned=False)
    assert fault.warning
    assert "--source" in fault.what


@pytest.mark.parametrize(
    'edit',
    [
        ("key: [PK, SK]", "key: [PK, S]"),
        ("type: type", "type: kind"),
        ("GSI1: {key: [GSI1PK, GSI1SK]}", "GSI1: {key: [GSI1PK, GSI1SK]}\n    Local: {key: [PK, L], local: true}"),
        ("    table: orders\n", "    table: orders\n    key: [number]\n"),
    ], ids=["key-altered", "told-apart", "local-made", "name-rows"],
)  # fmt: skip
def test_what_a_table_cannot_become(edit: tuple[str, str]) -> None:
    faults = [fault for fault in refused(BASE, changed(edit)) if not fault.warning]
    assert pins.said(fault.what for fault in faults)
