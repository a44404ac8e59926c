"""What is proposed for old tables is a mapping that its own parser takes, whatever attributes are called."""

from __future__ import annotations

import pytest

from migrator.features.init.documents import SampledTable, mapping_text
from migrator.mapping.check.check import check_mapping
from migrator.mapping.language.document import plain_of, quoted, text_of
from migrator.mapping.language.documents import facts_of
from migrator.mapping.language.parse import examine_mapping

NAMES = [
    "😀",
    "größe",
    "a b",
    'quo"te',
    "back\\slash",
    "tab\t",
    "del\x7f",
    "next\x85line",
    "\u2028",
    "\ufeffbom",
    "no",
    "𝒳:y",
]


@pytest.mark.parametrize("name", NAMES)
def test_any_attribute_name_is_written_as_the_parser_reads_it(name: str) -> None:
    items = [{"id": {"S": "1"}, name: {"SS": ["x"]}}]
    parsed = examine_mapping(mapping_text("Shop", [SampledTable("Old-Table", {"id": "S"}, items)]), "m.yaml")
    (table,) = parsed.mapping.documents.values()
    assert table.columns == {"id": "text", name: "set(text)"}


@pytest.mark.parametrize("name", NAMES)
def test_a_word_of_a_proposal_is_the_same_word_for_yaml(name: str) -> None:
    for text in (text_of(name), quoted(name)):
        assert plain_of(f"x: {text}\n") == {"x": name}


@pytest.mark.parametrize(
    "name", [*NAMES, "a|b", "a,b", "a:b", "a{b", "a}b", "a'b", "a.b", "*x", '"x"', "{", " x"]
)
@pytest.mark.parametrize("type_", ["S", "N", "B"])
def test_key_of_any_name_and_type_fits_its_declaration(name: str, type_: str) -> None:
    values = {"S": "1", "N": "1", "B": b"1"}
    for items in ([], [{"id": {"S": "1"}, name: {type_: values[type_]}}]):
        table = SampledTable("Old-Table", {"id": "S", name: type_}, items)
        parsed = examine_mapping(mapping_text("Shop", [table]), "m.yaml")
        checked = check_mapping(parsed, facts_of(parsed.mapping), {})
        (entity,) = checked.mapping.entities.values()
        assert [path for part in entity.items[0].key for ref in part.refs for path in ref.paths] == [
            "id",
            name,
        ]
