"""Keys as they may be shown: nothing that could name a person, and enough to tell keys apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.mapping.show.redaction import integers_of, key_templates, mask, masked_keys
from migrator.model.table import encode_key
from tests.support_mapping import parse_mapping

MAPPING = """
mapping: 1
table: {name: Shop, key: [PK, SK], type: type}
source: {schemas: [acme]}
entities:
  users:
    items:
      User: {key: ["TENANT#{@schema}#USER#{id:010}", META]}
      Email: {key: ["EMAIL#{email|lower}", EMAIL]}
      Visit: {key: ["U-{name}/{day}", "{at|iso:s}"]}
      Any: {key: ["{name}", "{name}{city}#END"]}
"""
TEMPLATES = key_templates(parse_mapping(MAPPING, "m.yaml").mapping)
UUID = "7f6b1c1e-0d55-4b8e-9d6e-3a1f0a3d0b11"
ANN = mask("ann@example.com")


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (["EMAIL#ann@example.com", "EMAIL"], [f"EMAIL#{ANN}", "EMAIL"]),
        (["TENANT#acme#USER#0000000042", "META"], ["TENANT#acme#USER#0000000042", "META"]),
        (["TENANT#acme#USER#0012345678", "META"], [f"TENANT#acme#USER#{mask('0012345678')}", "META"]),
        (["TENANT#bolt#USER#1", "META"], [f"{mask('TENANT')}#{mask('bolt')}#{mask('USER')}#1", "META"]),
        (["U-Ann/2026-01-02", "2026-01-02T03:04:05Z"], [f"U-{mask('Ann')}/2026-01-02", "2026-01-02T03:04:05Z"]),
        ([UUID, "2026-01"], [UUID, "2026-01"]),
        (["+491701234567", "4111 1111"], [mask("+491701234567"), mask("4111 1111")]),
        (["Ann#END", "#END"], [f"{mask('Ann')}#END", "#END"]),
        ([42, None, True, {"b64": "QW5u"}], [42, None, True, mask('{"b64": "QW5u"}')]),
        (["EMAIL#EMAIL#x", "12.50"], [f"EMAIL#{mask('EMAIL#x')}", "12.50"]),
    ],
)  # fmt: skip
def test_only_parts_that_name_no_person_stay(key: list[object], shown: list[object]) -> None:
    text = (
        encode_key(key) if not any(isinstance(one, dict) for one in key) else '[42,null,true,{"b64":"QW5u"}]'
    )
    assert masked_keys(text, TEMPLATES) == encode_key(shown)


def test_the_integers_of_the_row_stay_in_its_items_too() -> None:
    known = integers_of('[12345678,"ann"]')
    assert known == {"12345678"}
    key = '["TENANT#acme#USER#0012345678","META"]'
    assert masked_keys(key, TEMPLATES, known) == key


def test_keys_in_a_sentence_are_masked_and_the_sentence_stays() -> None:
    said = 'Email: users ["ann@example.com"] makes the same key as users [7] [and [more'
    assert (
        masked_keys(said, TEMPLATES) == f'Email: users ["{ANN}"] makes the same key as users [7] [and [more'
    )


def test_without_a_mapping_all_text_is_masked() -> None:
    assert masked_keys('["EMAIL#ann@example.com","7"]', ()) == f'["{mask("EMAIL")}#{ANN}","7"]'


@given(st.text(alphabet="ghijk@.-+ ", min_size=3))
def test_a_name_never_shows_wherever_it_stands(name: str) -> None:
    for key in ([name], [f"EMAIL#{name}", f"{name}#END"], [f"U-{name}/{name}", f"TENANT#{name}"]):
        assert name not in masked_keys(encode_key(key), TEMPLATES)
