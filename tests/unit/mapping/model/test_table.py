from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pytest

from migrator.mapping.model.table import decode_key, encode_key, item_key_text, source_text, split_source


def test_a_key_comes_back_as_it_went() -> None:
    values = (1, 'a"b:[#]', b"\x00\xff", True, None, "ö")
    assert decode_key(encode_key(values)) == values


def test_what_json_does_not_know_becomes_text() -> None:
    values = (Decimal("1.50"), UUID(int=1), date(2021, 1, 2), datetime(2021, 1, 2, 3, tzinfo=UTC))
    assert encode_key(values) == (
        '["1.50","00000000-0000-0000-0000-000000000001","2021-01-02","2021-01-02 03:00:00+00:00"]'
    )


def test_a_key_of_an_odd_type_is_refused() -> None:
    with pytest.raises(TypeError, match="dict"):
        encode_key([{}])


@pytest.mark.parametrize("text", ["", "[]", "{}", "1", "x", '["a"'])
def test_what_is_no_key_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        decode_key(text)


def test_source_text_comes_apart_again() -> None:
    assert split_source(source_text("order", '["a:b",1]')) == ("order", '["a:b",1]')


@pytest.mark.parametrize("text", ["", "order", ":[1]", "order:", "order:x"])
def test_a_foreign_source_text_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        split_source(text)


def test_equal_dynamodb_numbers_have_one_text_in_an_item_key() -> None:
    texts = {item_key_text([value, "S"]) for value in (5, Decimal(5), Decimal("5.00"), Decimal("0.5E+1"))}
    assert texts == {'[5,"S"]'}
    big = Decimal("12345678901234567890123456789012345678")
    assert item_key_text([big]) != item_key_text([big + 1])
    assert item_key_text([Decimal("1.50")]) == item_key_text([Decimal("1.5")])
