"""A DynamoDB table as a Terraform definition: the whole file, and the lines of one part of it.

A definition is what CreateTable takes, with the specifications of TTL and recovery beside it. A part is what a
difference is about: key, ttl, index NAME, or an option of the job. Source: the resource aws_dynamodb_table of the AWS
provider; lines stand as `terraform fmt` puts them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from migrator.output.export.file import Definition, comment

_PROVIDERS: tuple[tuple[str, Callable[[Definition], bool]], ...] = (
    # key_schema came with 6.29.0; before 6.37.0 an index taken out of a definition took every index with it.
    ("6.37.0", lambda definition: any(_is_of_several(index["KeySchema"]) for index in _global(definition))),
    ("6.13.0", lambda definition: "WarmThroughput" in definition),
    ("5.0.0", lambda definition: True),
)
"""The oldest version of the provider that knows what a definition has. Source: its CHANGELOG."""


class _Reference(str):
    """What something else in the file is called, which stands without quotes."""


@dataclass(frozen=True)
class _Block:
    """`values`: arguments of one line each. `spaced`: whether blank lines stand between its blocks."""

    header: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    blocks: Sequence[_Block] = ()
    spaced: bool = False

    def lines(self) -> list[str]:
        inner = [*_aligned(self.values)]
        for block in self.blocks:
            inner += ["", *block.lines()] if self.spaced else block.lines()
        if not self.header:
            return inner
        return [f"{self.header} {{", *(f"  {line}" if line else "" for line in inner), "}"]


def _aligned(values: Mapping[str, Any]) -> Iterator[str]:
    width = max(map(len, values), default=0)
    for name, value in values.items():
        yield f"{name:<{width}} = {_literal(value)}"


def _literal(value: Any) -> str:
    """JSON but for what Terraform would read as a template in a string."""
    if isinstance(value, _Reference):
        return value
    return json.dumps(value, ensure_ascii=False).replace("${", "$${").replace("%{", "%%{")


def terraform_file(definition: Definition, head: Sequence[str]) -> str:
    """The whole file. `head`: what it says of itself first."""
    parts = [_part(part, definition) for part in _SETTINGS]
    names = [attribute["AttributeName"] for attribute in definition["AttributeDefinitions"]]
    table = _Block(
        f'resource "aws_dynamodb_table" "{_label(definition)}"',
        {"name": definition["TableName"], **_key_names(definition["KeySchema"])}
        | {name: value for part in parts for name, value in part.values.items()},
        [
            *_attributes(names, definition),
            *(_index_block(index, definition) for index in _indexes(definition)),
            *(block for part in parts for block in part.blocks),
            *_tags(definition.get("Tags", ())),
        ],
        spaced=True,
    )
    blocks = [_required(definition), table, *_insights("", definition).blocks]
    return "\n\n".join([comment("#", head), *("\n".join(block.lines()) for block in blocks)]) + "\n"


def terraform(part: str, definition: Definition) -> list[str]:
    """Lines of the resource aws_dynamodb_table; [] where the definition says nothing of the part."""
    return _part(part, definition).lines()


def _part(part: str, definition: Definition) -> _Block:
    kind, _, name = part.partition(" ")
    return _PARTS[kind](name, definition)


def _required(definition: Definition) -> _Block:
    oldest = next(version for version, needs in _PROVIDERS if needs(definition))
    provider = _Block("aws =", {"source": "hashicorp/aws", "version": f">= {oldest}"})
    return _Block("terraform", blocks=[_Block("required_providers", blocks=[provider])])


# ── keys and indexes ──


def _key(_: str, definition: Definition) -> _Block:
    names = [attribute["AttributeName"] for attribute in definition["AttributeDefinitions"]]
    return _Block(values=_key_names(definition["KeySchema"]), blocks=_attributes(names, definition))


def _key_names(schema: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    names = {"HASH": "hash_key", "RANGE": "range_key"}
    return {names[attribute["KeyType"]]: attribute["AttributeName"] for attribute in schema}


def _attributes(names: Collection[str], definition: Definition) -> list[_Block]:
    """A block for each of these key attributes; a key of an attribute without one is refused."""
    return [
        _Block("attribute", {"name": attribute["AttributeName"], "type": attribute["AttributeType"]})
        for attribute in definition["AttributeDefinitions"]
        if attribute["AttributeName"] in names
    ]


def _index(name: str, definition: Definition) -> _Block:
    index = next((one for one in _indexes(definition) if one["IndexName"] == name), None)
    if index is None:
        return _Block()
    table_key = {attribute["AttributeName"] for attribute in definition["KeySchema"]}
    own = {attribute["AttributeName"] for attribute in index["KeySchema"]} - table_key
    return _Block(blocks=[*_attributes(own, definition), _index_block(index, definition)])


def _index_block(index: Mapping[str, Any], definition: Definition) -> _Block:
    is_local = index not in _global(definition)
    schema, projection = index["KeySchema"], index["Projection"]
    values: dict[str, Any] = {"name": index["IndexName"]}
    blocks = []
    if _is_of_several(schema):
        blocks = [
            _Block(
                "key_schema",
                {"attribute_name": attribute["AttributeName"], "key_type": attribute["KeyType"]},
            )
            for attribute in schema
        ]
    else:
        values |= _key_names(schema[1:] if is_local else schema)
    values["projection_type"] = projection["ProjectionType"]
    if "NonKeyAttributes" in projection:
        values["non_key_attributes"] = projection["NonKeyAttributes"]
    values |= _plain(*_CAPACITY)("", index).values
    return _Block(f"{'local' if is_local else 'global'}_secondary_index", values, blocks)


def _indexes(definition: Definition) -> list[Mapping[str, Any]]:
    return [*_global(definition), *definition.get("LocalSecondaryIndexes", ())]


def _global(definition: Definition) -> list[Mapping[str, Any]]:
    return [*definition.get("GlobalSecondaryIndexes", ())]


def _is_of_several(schema: Sequence[Mapping[str, str]]) -> bool:
    """Whether a part of the key has several attributes, so that it has a block for each."""
    kinds = [attribute["KeyType"] for attribute in schema]
    return len(set(kinds)) < len(kinds)


# ── everything else ──


def _plain(*words: tuple[str, str]) -> Callable[[str, Definition], _Block]:
    """Values that stand alone: (Terraform's word, the definition's path of words)."""

    def block(_: str, definition: Definition) -> _Block:
        values = {}
        for ours, path in words:
            value: Any = definition
            for step in path.split("."):
                value = value.get(step) if value else None
            if value is not None:
                values[ours] = value
        return _Block(values=values)

    return block


def _nested(header: str, name: str, *words: tuple[str, str]) -> Callable[[str, Definition], _Block]:
    """The block of one specification: (Terraform's word there, the definition's word)."""

    def block(_: str, definition: Definition) -> _Block:
        settings = definition.get(name)
        inner = settings and [_Block(header, {ours: settings[theirs] for ours, theirs in words})]
        return _Block(blocks=inner or [])

    return block


def _tag(name: str, definition: Definition) -> _Block:
    return _Block(blocks=_tags([tag for tag in definition.get("Tags", ()) if tag["Key"] == name]))


def _tags(tags: Sequence[Mapping[str, str]]) -> list[_Block]:
    return [_Block("tags =", {json.dumps(tag["Key"]): tag["Value"] for tag in tags})] if tags else []


def _insights(_: str, definition: Definition) -> _Block:
    """A resource of its own."""
    if "ContributorInsightsSpecification" not in definition:
        return _Block()
    label = _label(definition)
    named = {"table_name": _Reference(f"aws_dynamodb_table.{label}.name")}
    return _Block(blocks=[_Block(f'resource "aws_dynamodb_contributor_insights" "{label}"', named)])


def _label(definition: Definition) -> str:
    return re.sub(r"\W|^(?=\d)", "_", definition["TableName"].lower(), flags=re.ASCII)


_CAPACITY = (
    ("read_capacity", "ProvisionedThroughput.ReadCapacityUnits"),
    ("write_capacity", "ProvisionedThroughput.WriteCapacityUnits"),
)
_SETTINGS: dict[str, Callable[[str, Definition], _Block]] = {
    "billing": _plain(("billing_mode", "BillingMode"), *_CAPACITY),
    "table_class": _plain(("table_class", "TableClass")),
    "deletion_protection": _plain(("deletion_protection_enabled", "DeletionProtectionEnabled")),
    "stream": _plain(
        ("stream_enabled", "StreamSpecification.StreamEnabled"),
        ("stream_view_type", "StreamSpecification.StreamViewType"),
    ),
    "ttl": _nested(
        "ttl", "TimeToLiveSpecification", ("attribute_name", "AttributeName"), ("enabled", "Enabled")
    ),
    "pitr": _nested(
        "point_in_time_recovery",
        "PointInTimeRecoverySpecification",
        ("enabled", "PointInTimeRecoveryEnabled"),
    ),
    "warm_throughput": _nested(
        "warm_throughput",
        "WarmThroughput",
        ("read_units_per_second", "ReadUnitsPerSecond"),
        ("write_units_per_second", "WriteUnitsPerSecond"),
    ),
}
_PARTS = _SETTINGS | {"key": _key, "index": _index, "tag": _tag, "contributor_insights": _insights}
