"""Digests of stored items are those of their rows, however the table writes them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from migrator.mapping.items.encoder import compile_texts, encode_texts
from migrator.mapping.items.items import items_for
from migrator.mapping.items.wire import base64_text, encode_item
from migrator.mapping.model.edges import RawPage, WiredItem
from migrator.stages.verify.digests import Canonical, learn_and_check, sorted_where_maps
from tests.golden import heart

ORDERS = heart.facts(
    heart.table("orders", {"id": "integer!", "note": "text", "paid": "boolean"}),
    heart.table(
        "lines",
        {"order_id": "integer!", "n": "integer!", "product": "text"},
        key=("order_id", "n"),
        references={"order_id": "orders.id"},
    ),
)
ENTITY = heart.entity(
    """
entities:
  orders:
    collect: {lines: {of: lines, by: order_id, order_by: [n]}}
    items:
      Order:
        key: ["ORDER#{id}", META]
        keep: all
        attributes: {lines: {each: lines, attributes: {n: n, product: product}}}
""",
    ORDERS,
)
ROWS: list[tuple[Any, ...]] = [
    (1, "a", True, ((1, "x"), (2, None))),
    (2, None, None, ()),
    (3, 'é"\\\n', False, ((1, "y"),)),
    (4, "b", None, ((1, None),)),
]


def stored(ticket: int = 0) -> list[WiredItem]:
    """What the rows become, with all names in reverse."""
    items = []
    for row in ROWS:
        for item in items_for(ENTITY, row):
            wired = orjson.loads(orjson.dumps(encode_item({**item, "_tk": ticket}), default=base64_text))
            wired["lines"]["L"] = [{"M": dict(reversed(child["M"].items()))} for child in wired["lines"]["L"]]
            items.append(dict(reversed(wired.items())))
    return items


def texts_of(items: list[WiredItem]) -> list[bytes]:
    return [orjson.dumps(item)[2:-2] for item in items]


def of_rows(canonical: Canonical) -> list[bytes]:
    encoder = compile_texts(ENTITY, frozenset(), canonical.orders)
    assert encoder is not None
    page = encode_texts(encoder, RawPage(ROWS))
    texts = [text for text, _ in page.items]
    return list(map(sorted_where_maps, texts)) if encoder.program.may_have_maps else texts


@pytest.fixture
def canonical() -> Canonical:
    return Canonical(ENTITY, ENTITY.plan.entity.items[0], compile_texts(ENTITY, frozenset(), {}))


def test_answer_of_the_table_is_hashed_as_it_is(canonical: Canonical) -> None:
    texts = texts_of(stored())
    assert learn_and_check([(canonical, texts)])
    assert texts == of_rows(canonical)


def test_another_ticket_has_the_same_digest(canonical: Canonical) -> None:
    assert learn_and_check([(canonical, texts_of(stored()))])
    assert [canonical.text(item) for item in stored(ticket=7)] == of_rows(canonical)


def test_unlearned_order_is_detected_and_has_the_same_digest(canonical: Canonical) -> None:
    assert learn_and_check([(canonical, texts_of(stored()))])
    others = [dict(reversed(item.items())) for item in stored()]
    assert not learn_and_check([(canonical, texts_of(others))])
    assert [canonical.text(item) for item in others] == of_rows(canonical)


def test_orders_that_contradict_each_other_are_none(canonical: Canonical) -> None:
    names = canonical.orders["Order",]
    others = [dict(reversed(item.items())) for item in stored()]
    canonical.learn([*stored(), *others])
    assert canonical.orders["Order",] == names
    assert [canonical.text(item) for item in others] == of_rows(canonical)


def test_another_value_anywhere_has_another_digest(canonical: Canonical) -> None:
    canonical.learn(stored())
    items = stored()
    items[0]["lines"]["L"][1]["M"]["n"] = {"N": "3"}
    items[1]["more"] = {"S": ""}
    del items[2]["note"]
    items[3]["lines"]["L"].append({"S": "x"})
    assert not {canonical.text(item) for item in items} & set(of_rows(canonical))


def test_the_order_of_a_sets_members_makes_no_other_digest() -> None:
    value = (
        "tags: tags|set, more: {map: {of_map: tags|set}}, lines: {each: lines, attributes: {tags: tags|set}}"
    )
    line = heart.table("lines", {"t_id": "integer!", "n": "integer!", "tags": "json"}, ("t_id", "n"))
    facts = heart.facts(heart.table("t", {"id": "integer!", "tags": "json"}), line)
    text = f'entities: {{t: {{collect: {{lines: {{of: lines, by: t_id}}}}, items: {{T: {{key: ["T#{{id}}", M], attributes: {{{value}}}}}}}}}}}'
    entity = heart.entity(text, facts)
    encoder = compile_texts(entity, frozenset(), {})
    assert encoder is not None
    canonical = Canonical(entity, entity.plan.entity.items[0], encoder)
    row = (1, '["b", "a"]', ((1, 1, '["c", "d"]'),))
    ((text_of_row, _),) = encode_texts(encoder, RawPage([row])).items
    (item,) = (encode_item(made) for made in items_for(entity, row))
    item["tags"], item["more"] = {"SS": ["b", "a"]}, {"M": {"of_map": {"SS": ["b", "a"]}}}
    item["lines"] = {"L": [{"M": {"tags": {"SS": ["d", "c"]}}}]}
    assert canonical.text(item) == sorted_where_maps(text_of_row)
