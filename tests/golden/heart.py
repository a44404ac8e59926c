"""Golden cases of the heart: a mapping and a schema in short form, rows in, items out, all written by hand."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from typing import Any

import orjson

from migrator.mapping.check.check import Checked, check_mapping
from migrator.mapping.items.encoder import (
    EncodedPage,
    Encoder,
    PutTexts,
    compile_encoder,
    encode_page,
    encode_puts,
    names_and_values,
)
from migrator.mapping.items.items import CompiledEntity, items_for, stamp
from migrator.mapping.items.native import _native
from migrator.mapping.items.transforms import Transform
from migrator.mapping.items.wire import decode_item, item_bytes
from migrator.mapping.language.parse import examine_mapping
from migrator.mapping.model.edges import RawPage
from migrator.mapping.model.facts import Column, ForeignKey, Kind, SchemaFacts, TableFacts
from migrator.mapping.model.table import EncodedItem, Item, RowTree
from migrator.runtime.errors import MappingError, RowError
from migrator.runtime.values import replace
from migrator.stages.verify.digests import KEY_BYTES, Digester
from tests.golden.generated import generated_alike

_KIND = re.compile(r"(?P<name>\w+)(?:\((?P<scale>\d+)\))?(?P<zone> with zone)?(?P<required>!)?")

HEAD = """
mapping: 1
table:
  name: Shop
  key: [PK, SK]
  type: type
  ttl: expiresAt
  indexes:
    GSI1: {key: [GSI1PK, GSI1SK]}
    ByTotal: {key: [ByTotalPK, {name: score, type: number}]}
maps:
  status: {P: pending, S: shipped}
"""


def column(name: str, text: str) -> Column:
    """A column out of `integer`, `text!` (NOT NULL), `number(2)`, `timestamp with zone`."""
    match = _KIND.fullmatch(text)
    assert match, text
    scale = int(match["scale"]) if match["scale"] else None
    kind = Kind(match["name"], scale, zone=bool(match["zone"]))  # type: ignore[arg-type]
    return Column(name, name, kind, nullable=not match["required"], declared=text)


def table(name: str, columns: dict[str, str], key: tuple[str, ...] = ("id",), **more: Any) -> TableFacts:
    """`references`: {column: "table.column"}; `unique`: tuples of columns."""
    keys = tuple(
        ForeignKey((ours,), target.split(".")[0], (target.split(".")[1],))
        for ours, target in more.get("references", {}).items()
    )
    made = tuple(column(one, text) for one, text in columns.items())
    return TableFacts(name, name, made, key, tuple(more.get("unique", ())), keys)


def facts(*tables: TableFacts, dialect: str = "postgresql") -> SchemaFacts:
    return SchemaFacts(dialect, {one.name: one for one in tables}, loosely_typed=dialect == "sqlite")


def check(
    text: str, schema: SchemaFacts, head: str = HEAD, transforms: dict[str, Transform] | None = None
) -> Checked:
    return check_mapping(examine_mapping(head + text, "m.yaml"), schema, transforms)


def faults(text: str, schema: SchemaFacts, head: str = HEAD) -> list[str]:
    """Every fault and warning as text."""
    try:
        return [str(fault) for fault in check(text, schema, head).warnings]
    except MappingError as error:
        return [str(fault) for fault in error.faults]


def entity(
    text: str, schema: SchemaFacts, head: str = HEAD, transforms: dict[str, Transform] | None = None
) -> CompiledEntity:
    """The first entity of the mapping, compiled."""
    return check(text, schema, head, transforms).entities[0]


def both_ways(compiled: CompiledEntity, row: RowTree, *, by_module: bool = True) -> list[Item]:
    """The items of a row by items_for(), after the entity's generated function has made the same, or refused the row alike."""
    page = RawPage([row], frozenset(), tuple)
    return alike(compiled, row, compile_encoder(compiled), page, by_module=by_module)


def as_puts(encoder: Encoder, page: RawPage) -> EncodedPage:
    """The page by way of the text of its puts."""
    made = encode_puts(encoder, page, 7, -float("inf"))
    if isinstance(made.items, PutTexts) and made.items:
        puts = orjson.loads(b"[%b]" % made.items.json())
        wired = [orjson.loads(item.json) for item in made.items]
        assert puts == [{"PutRequest": {"Item": item}} for item in wired]
        members = [names + b"=" + values + b"]}" for names, values in map(names_and_values, made.items)]
        assert made.items.inserts(lambda names: names + b"=") == b",".join(members)
        assert made.items.sizes == [item.size_bytes for item in made.items]
    return replace(made, items=list(made.items), expired=list(made.expired))


def alike(
    compiled: CompiledEntity, row: RowTree, encoder: Encoder | None, page: RawPage, *, by_module: bool = True
) -> list[Item]:
    """The same of a row that was read a second time for the encoder. `by_module`: generated Python makes them, too; of values
    that no column of their kind has it makes none."""
    encoded = None if encoder is None else encode_page(encoder, page, 7, -float("inf"))
    if encoder is not None and encoded is not None:
        assert as_puts(encoder, page) == encoded
    try:
        made = items_for(compiled, row)
    except RowError as error:
        reasons = None if encoded is None else [finding.reason for finding in encoded.refused]
        if reasons not in (None, [str(error)]):
            raise AssertionError(f"the encoder says {reasons}") from error
        raise
    if by_module:
        generated_alike(compiled, row, made)
    if encoded is not None:
        stamp(wanted := [dict(item) for item in made], compiled.table, 7)
        assert not encoded.refused
        assert [decode_item(orjson.loads(data)) for data in (item.json for item in encoded.items)] == wanted
        assert [list(orjson.loads(data)) for data in (item.json for item in encoded.items)] == [
            list(item) for item in wanted
        ]
        assert [
            (item.key, item.size_bytes, item.type, item.source, item.ticket) for item in encoded.items
        ] == [
            (
                compiled.table.key_of(item),
                item_bytes(item),
                item[compiled.table.type_attribute],
                item[compiled.table.source_attribute],
                7,
            )
            for item in wanted
        ]
        assert [item.expiry for item in encoded.items] == [
            item.get(str(compiled.table.ttl)) for item in wanted
        ]
        _digested_alike(compiled, encoded.items)
    return made


def _digested_alike(compiled: CompiledEntity, items: Sequence[EncodedItem]) -> None:
    """A stored item has the digest of the row's, whatever the order of its names and members."""
    digester = Digester(compiled.table, bytes(KEY_BYTES))
    assert digester.native is not None
    made = [digester.native.item(item.json) for item in items]
    stored = [shuffled(orjson.loads(item.json)) for item in items]
    assert [digester.of(item) for item in stored] == made
    source, left = orjson.dumps(f"{compiled.plan.entity.name}:")[:-1], list[bytes]()
    tallies = {
        b'{"S":%b}' % orjson.dumps(item.type): _native.Tally(b'{"S":%b' % source, ()) for item in items
    }
    texts = list(map(orjson.dumps, stored))
    count, digests = digester.native.page(
        b",".join(texts),
        orjson.dumps(compiled.table.type_attribute),
        orjson.dumps(compiled.table.source_attribute),
        tallies,
        left,
    )
    assert count == len(items)
    assert left == [text for text in texts if b"\\" in text]
    assert sorted([*array("q", digests), *(digester.native.item(text) for text in left)]) == sorted(made)


def shuffled(wired: Any) -> Any:
    """The same value with its names and its sets' members in another order."""
    if isinstance(wired, dict):
        return {
            name: inner[::-1] if name in ("SS", "NS", "BS") and isinstance(inner, list) else shuffled(inner)
            for name, inner in reversed(wired.items())
        }
    return [shuffled(inner) for inner in wired] if isinstance(wired, list) else wired


def items(compiled: CompiledEntity, values: dict[str, Any]) -> list[Item]:
    """The items of a row given by path; paths that are not given are NULL. Revision attributes are left out."""
    lists = {one.collection.alias: one for one in compiled.plan.collections}
    row = [values.get(slot.path) for slot in compiled.plan.slots]
    for alias, one in lists.items():
        value = values.get(alias)
        if one.collection.is_list:
            value = tuple(tuple(child.get(slot.path) for slot in one.slots) for child in value or ())
        row.append(value)
    made = both_ways(compiled, tuple(row))
    return [{name: value for name, value in item.items() if name != "_rev"} for item in made]
