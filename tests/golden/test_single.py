"""Golden cases of one item of whole tables, and what its entity cannot have."""

from __future__ import annotations

import pytest

from migrator.runtime.errors import MappingError
from tests import pins
from tests.golden import heart

SCHEMA = heart.facts(
    heart.table("country", {"code": "text!", "name": "text"}, ("code",)),
    heart.table(
        "rate",
        {"id": "integer!", "country": "text", "percent": "integer"},
        references={"country": "country.code"},
    ),
)
MAPPING = """
entities:
  lookups:
    single: true
    collect:
      countries: {of: country, at_most: 2}
      rates: {of: rate, join: {land: country}, order_by: [percent]}
      top: {of: rate, max: percent}
    items:
      Lookups:
        key: [LOOKUPS, META]
        attributes:
          countries: {each: countries, key: code, attributes: {name: name}}
          rates: {each: rates, attributes: {percent: percent, name: land.name}}
          codes: countries.code|set
          top: top
"""
AT, SE = {"code": "AT", "name": "Austria"}, {"code": "SE", "name": None}


def test_whole_tables_are_one_item() -> None:
    rates = [{"percent": 20, "id": 2, "land.name": "Austria"}, {"percent": 25, "id": 1, "land.name": None}]
    entity = heart.entity(MAPPING, SCHEMA)
    (item,) = heart.items(entity, {"single": 1, "countries": [AT, SE], "rates": rates, "top": 25})
    assert {name: value for name, value in item.items() if name[0] != "_"} == {
        "PK": "LOOKUPS",
        "SK": "META",
        "type": "Lookups",
        "countries": {"AT": {"name": "Austria"}, "SE": {}},
        "rates": [{"percent": 20, "name": "Austria"}, {"percent": 25}],
        "codes": ["AT", "SE"],
        "top": 25,
    }


def test_empty_tables_make_an_item() -> None:
    entity = heart.entity(MAPPING, SCHEMA)
    (item,) = heart.items(entity, {"single": 1, "countries": [], "rates": [], "top": None})
    assert (item["countries"], item["rates"], "codes" in item, "top" in item) == ({}, [], False, False)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "single: true",
            "single: true\n    table: country\n    key: [code]\n    where: [code]\n    join: {land: code}",
        ),
        ("single: true", "single: false"),
        ("{of: country, at_most: 2}", "{of: country, by: code}"),
        ("key: [LOOKUPS, META]", "key: ['LOOKUPS#{code}', META]"),
        ("key: [LOOKUPS, META]", "key: [LOOKUPS, META]\n        keep: [code]\n        when: name"),
        ("top: {of: rate, max: percent}", "up: {of: nothing}"),
    ],
)
def test_row_of_no_table_with_table_features_is_a_fault(old: str, new: str) -> None:
    with pytest.raises(MappingError) as caught:
        heart.entity(MAPPING.replace(old, new, 1), SCHEMA)
    assert pins.said([str(fault) for fault in caught.value.faults if not fault.warning])


def test_a_single_entity_names_its_tables() -> None:
    text = "entities: {all: {single: true, items: {All: {key: [ALL, META], attributes: {x: {const: 1}}}}}}"
    with pytest.raises(MappingError) as caught:
        heart.entity(text, SCHEMA)
    assert pins.said([str(fault) for fault in caught.value.faults])
