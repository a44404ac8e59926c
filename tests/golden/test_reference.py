"""The examples of mappings/README.md, run."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from migrator.mapping.language.document import plain_of
from migrator.mapping.model.facts import SchemaFacts
from migrator.runtime.values import replace
from tests.golden import heart

README = Path(__file__).parents[2] / "mappings" / "README.md"
BLOCK = re.compile(r"^```(?:yaml|json|python) (\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS: list[tuple[str, str]] = BLOCK.findall(README.read_text(encoding="utf-8"))


def plain(text: str) -> Any:
    return plain_of(text)


def the(kind: str) -> str:
    return next(text for found, text in BLOCKS if found == kind)


def schema() -> SchemaFacts:
    made = []
    for name, words in plain(the("schema")).items():
        key = tuple(words.pop("key", ["id"]))
        references = {c: text.split("->")[1].strip() for c, text in words.items() if "->" in text}
        columns = {c: text.split("->")[0].strip() for c, text in words.items()}
        made.append(heart.table(name, columns, key, references=references))
    return heart.facts(*made)


def examples() -> list[tuple[str, str, str]]:
    """(entity, row, items) of every example, the entity being the one that stands last before the row."""
    found, entity, row = [], "", ""
    for kind, text in BLOCKS:
        if kind == "entity":
            entity = text
        elif kind == "row":
            row = text
        elif kind == "items":
            found.append((entity, row, text))
    return found


def transforms() -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(the("transform"), names)
    return {"shop_rules:derived": names["derived"]}


def mapping_text(entity: str) -> str:
    return "entities:\n" + "".join(f"  {line}\n" for line in entity.splitlines())


@pytest.mark.parametrize(("entity", "row", "items"), examples())
def test_the_row_becomes_the_items(entity: str, row: str, items: str) -> None:
    compiled = heart.entity(mapping_text(entity), schema(), the("head"), transforms())
    made = heart.items(compiled, plain(row))
    for item in made:
        assert str(item.pop("_src")).startswith(f"{compiled.name}:[")
    assert made == json.loads(items, parse_float=Decimal)


def test_there_are_as_many_examples_as_we_think() -> None:
    assert len(examples()) == 15


def test_the_tenants_have_entities_of_their_own() -> None:
    tables = schema().tables
    named = {
        f"{tenant}.{name}": replace(one, schema=tenant)
        for tenant in ("acme", "bolt")
        for name, one in tables.items()
    }
    facts = SchemaFacts("postgresql", named, ("acme", "bolt"), loosely_typed=False)
    head = re.sub(r"^source: .*\n", "", the("head"), flags=re.MULTILINE)
    found = heart.check(the("tenants"), facts, head)
    assert [one.name for one in found.entities] == ["user@acme", "user@bolt"]
    (item,) = heart.items(found.entities[1], {"id": 7})
    assert (item["PK"], item["tenant"], item["_src"]) == ("TENANT#bolt#USER#7", "bolt", "user@bolt:[7]")
    assert found.unproved == {"user@acme": frozenset(), "user@bolt": frozenset()}


def test_the_access_patterns_fit_the_items() -> None:
    blocks = [text for kind, text in BLOCKS if kind == "entity"]
    entities = {text.partition(":")[0]: text for text in reversed(blocks)}  # the first one of each name
    text = mapping_text("".join(entities.values())) + "access_patterns:\n"
    patterns = "".join(text for kind, text in BLOCKS if kind == "patterns")
    text += "".join(f"  {line}\n" for line in patterns.splitlines())
    assert sorted(heart.check(text, schema(), the("head")).mapping.patterns) == [
        "events_of_day",
        "events_of_kind",
        "events_of_tenant",
        "large_orders",
        "order_by_key",
        "orders_and_profile",
        "orders_of_users",
        "product_by_id",
        "recent_orders",
        "shops_near",
        "some_users",
    ]


def test_every_filter_has_a_row_in_the_reference() -> None:
    from migrator.mapping.items.filters import FILTERS

    table = README.read_text(encoding="utf-8").split("| filter |")[1].split("\n\n")[0]
    assert set(
        re.findall(r"`(\w+)", "\n".join(line.split("|")[1] for line in table.splitlines()[2:]))
    ) == set(FILTERS)
