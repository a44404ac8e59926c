"""The digest of an answer is another one exactly where `mapping diff` says that the answer can be."""

from __future__ import annotations

import pytest

from migrator.mapping.difference.difference import answer_digests, items_digest
from tests.unit.mapping.difference.test_difference import ALIKE, BASE, changed, compared, revision

EDITS: list[tuple[str, str]] = [
    *ALIKE,
    ('["CUSTOMER#{customer}", {begins_with: "ORDER#"}]', '["CUSTOMER#{customer}", {begins_with: "ORDER#2"}]'),
    ("returns: [total]\n", "returns: [total]\n    frequency: 3/s\n"),
    ("returns: [total]\n", "returns: [total]\n    redact: [total]\n"),
    ("returns: [total]\n", "returns: [total]\n    atomic: true\n"),
    ("returns: [total]", "returns: [total, slug]"),
    ("sql: SELECT total FROM orders", "sql: SELECT total FROM orders o"),
    ("params: {id: integer}", "params: {id: number}"),
    ("total: total\n", 'total: "{total|upper}"\n'),
    ('status: "{status|map:status}"', "status: status"),
    ('slug: "{number|escape}"', 'slug: "{number}"'),
    ('slug: "{number|escape}"', 'slug: "{number|escape}"\n          more: number'),
    ("keep: [name], attributes: {city: city}", "keep: all"),
    ("where: {status: [P, S]}", "where: {status: [P]}"),
    ("when: {status: [P]}", "when: {status: [S]}"),
    ("        when: {status: [P]}\n", ""),
    ("ORDER#{placed|iso:s}#{id:06}", "ORDER#{placed|iso:ms}#{id:06}"),
    ('key: ["CUSTOMER#{id}", META]', 'key: ["CUSTOMER#{id:06}", META]'),
    ("{P: pending, S: shipped}", "{P: pending, S: sent}"),
    ("timezone: UTC", "timezone: Europe/Berlin"),
    ('separator: "#"', 'separator: "|"'),
    ("ttl: expires", "ttl: until"),
    ("GSI1: {key: [GSI1PK, GSI1SK]}", "GSI1: {key: [GSI1PK, GSI1SK], project: [total, status]}"),
    ("GSI1: {key: [GSI1PK, GSI1SK]}", "GSI1: {key: [GSI1PK, GSI1SK]}\n    GSI2: {key: [GSI2PK, GSI2SK]}"),
    ('["ORDER#{id}", "TICKET#{number|escape}"]', '["ORDER#{id}", "T#{number|escape}"]'),
]


@pytest.mark.parametrize("planned", [True, False])
@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: str(edit[1])[:40])
def test_digest_changes_exactly_if_the_answer_can(edit: tuple[str, str], *, planned: bool) -> None:
    texts = (BASE, changed(edit))
    before, after = (revision(text, planned=planned) for text in texts)
    found = compared(*texts, planned=planned)
    digests = [answer_digests(one.mapping, one.plans) for one in (before, after)]
    assert {name for name in digests[0] if digests[0][name] != digests[1][name]} == {
        one.name for one in found.patterns if one.answer_changes
    }


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: str(edit[1])[:40])
def test_items_have_another_digest_exactly_if_they_differ(edit: tuple[str, str]) -> None:
    texts = (BASE, changed(edit))
    before, after = (items_digest(one.mapping, one.plans) for one in map(revision, texts))
    found = compared(*texts)
    assert (before != after) == bool(found.entities or found.table)


def test_renamed_join_and_entity_attributes_give_the_same_items() -> None:
    alike = [
        changed(
            ("join: {customer: customer_id}", "join: {buyer: customer_id}"), ("customer.name", "buyer.name")
        ),
        changed(
            (
                "META], keep: [name], attributes: {city: city}}",
                "META], keep: [name]}\n    attributes: {city: city}",
            )
        ),
    ]
    made = [revision(text) for text in (BASE, *alike)]
    assert len({items_digest(one.mapping, one.plans) for one in made}) == 1
    assert len({one.mapping.revision for one in made}) == 3
