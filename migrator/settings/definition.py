"""Definition of a mapping's table: creation requests, and differences of an existing table."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from msgspec import Struct

from migrator.mapping.model.table import Index, KeyAttribute, TableDesign
from migrator.runtime.values import replace
from migrator.settings.job import TableOptions, Units

# ── The requests that make a mapping's table, with the options that the job asks for ──

TYPES = {"text": "S", "number": "N", "binary": "B"}
Request = tuple[str, dict[str, Any]]
"""An operation of the client and its parameters."""


def creation_request(design: TableDesign, options: TableOptions | None = None) -> dict[str, Any]:
    wanted = options or TableOptions()
    throughput = _throughput(wanted)
    request: dict[str, Any] = {
        "TableName": design.name,
        "BillingMode": "PROVISIONED" if throughput else "PAY_PER_REQUEST",
        "KeySchema": key_schema(design.key[:1], design.key[1:]),
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": TYPES[type_]}
            for name, type_ in _attributes(design).items()
        ],
        **throughput,
        **_settings(wanted),
    }
    for word, local in (("GlobalSecondaryIndexes", False), ("LocalSecondaryIndexes", True)):
        own = {} if local else throughput
        indexes = [_index_request(index) | own for index in design.indexes if index.local is local]
        if indexes:
            request[word] = indexes
    return request


def later_requests(design: TableDesign, options: TableOptions | None = None) -> list[Request]:
    wanted, name = options or TableOptions(), {"TableName": design.name}
    requests: list[Request] = []
    if design.ttl:
        specification = {"Enabled": True, "AttributeName": design.ttl}
        requests.append(("update_time_to_live", {**name, "TimeToLiveSpecification": specification}))
    if wanted.pitr:
        pitr = {"PointInTimeRecoveryEnabled": True}
        requests.append(("update_continuous_backups", {**name, "PointInTimeRecoverySpecification": pitr}))
    if wanted.contributor_insights:
        requests.append(("update_contributor_insights", {**name, "ContributorInsightsAction": "ENABLE"}))
    return requests


_OF_IMPORTS = (
    "TableName",
    "BillingMode",
    "KeySchema",
    "AttributeDefinitions",
    "ProvisionedThroughput",
    "GlobalSecondaryIndexes",
)


def import_parameters(design: TableDesign, options: TableOptions) -> dict[str, Any]:
    """The part of CreateTable's parameters that ImportTable takes. Source: API reference, TableCreationParameters."""
    request = creation_request(design, options)
    return {name: request[name] for name in _OF_IMPORTS if name in request}


def requests_after_import(
    design: TableDesign, options: TableOptions, arn: str, missing: Collection[str]
) -> Iterator[Request]:
    settings, table = _settings(options), {"TableName": design.name}
    words = {
        "deletion_protection": "DeletionProtectionEnabled",
        "stream": "StreamSpecification",
        "table_class": "TableClass",
        "warm_throughput": "WarmThroughput",
    }
    # UpdateTable takes one change at a time.
    for option, word in words.items():
        if option in missing:
            yield "update_table", {**table, word: settings[word]}
    if any(option.startswith("tag ") for option in missing):
        yield "tag_resource", {"ResourceArn": arn, "Tags": settings["Tags"]}


def definition(design: TableDesign, options: TableOptions) -> dict[str, Any]:
    request = creation_request(design, options)
    for _, later in later_requests(design, options):
        request |= later
    if request.pop("ContributorInsightsAction", None):
        request["ContributorInsightsSpecification"] = {"Enabled": True}
    return {**request, "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": options.pitr}}


def key_schema(partition: tuple[KeyAttribute, ...], sort: tuple[KeyAttribute, ...]) -> list[dict[str, str]]:
    return [{"AttributeName": attribute.name, "KeyType": "HASH"} for attribute in partition] + [
        {"AttributeName": attribute.name, "KeyType": "RANGE"} for attribute in sort
    ]


def projection(index: Index) -> dict[str, Any]:
    if isinstance(index.projection, tuple):
        return {"ProjectionType": "INCLUDE", "NonKeyAttributes": list(index.projection)}
    return {"ProjectionType": {"all": "ALL", "keys": "KEYS_ONLY"}[index.projection]}


def _settings(options: TableOptions) -> dict[str, Any]:
    stream = {"StreamEnabled": True, "StreamViewType": (options.stream or "").upper()}
    tags = [{"Key": name, "Value": value} for name, value in options.tags.items()]
    wanted = {
        "DeletionProtectionEnabled": options.deletion_protection or None,
        "StreamSpecification": stream if options.stream else None,
        "Tags": tags or None,
        "TableClass": options.table_class and options.table_class.upper(),
        "WarmThroughput": options.warm_throughput and _units(options.warm_throughput, "UnitsPerSecond"),
    }
    return {name: value for name, value in wanted.items() if value is not None}


def _throughput(options: TableOptions) -> dict[str, Any]:
    wanted = options.provisioned
    return {"ProvisionedThroughput": _units(wanted, "CapacityUnits")} if wanted else {}


def _units(units: Units, word: str) -> dict[str, int]:
    return {f"Read{word}": units.read, f"Write{word}": units.write}


def _index_request(index: Index) -> dict[str, Any]:
    return {
        "IndexName": index.name,
        "KeySchema": key_schema(index.partition, index.sort),
        "Projection": projection(index),
    }


def _attributes(design: TableDesign) -> dict[str, str]:
    keys = [*design.key, *(attribute for index in design.indexes for attribute in index.attributes)]
    return {attribute.name: attribute.type for attribute in keys}


# ── Differences of a table's options from the job's ──

_ON = ("ENABLED", "ENABLING")


def option_differences(
    options: TableOptions, description: dict[str, Any], answers: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """Return (option, sentence). `description`: of DescribeTable; `answers`: of the operations in
    `wanted_answers`.
    """
    for name, wanted, there in _pairs(options, description, answers):
        if wanted != there:
            yield name, f"{name} is {wanted} in the job and {there} in the table"


def wanted_answers(options: TableOptions) -> list[str]:
    """Operations needed for the comparison; each requires a permission, so no more than needed."""
    operations = ["describe_continuous_backups"]
    operations += ["describe_contributor_insights"] * options.contributor_insights
    return operations + ["list_tags_of_resource"] * bool(options.tags)


def _pairs(
    options: TableOptions, description: dict[str, Any], answers: dict[str, Any]
) -> Iterator[tuple[str, str, str]]:
    backups = answers.get("describe_continuous_backups", {}).get("ContinuousBackupsDescription", {})
    pitr = backups.get("PointInTimeRecoveryDescription", {}).get("PointInTimeRecoveryStatus")
    yield "pitr", _switch(options.pitr), _switch(pitr in _ON)
    yield "billing", *_billing(options, description)
    if options.deletion_protection:
        yield "deletion_protection", "on", _switch(bool(description.get("DeletionProtectionEnabled")))
    if options.stream:
        yield "stream", options.stream, _stream(description)
    if options.contributor_insights:
        insights = answers.get("describe_contributor_insights", {}).get("ContributorInsightsStatus")
        yield "contributor_insights", "on", _switch(insights in _ON)
    if options.table_class:
        there = (description.get("TableClassSummary") or {}).get("TableClass", "STANDARD")
        yield "table_class", options.table_class, str(there).lower()
    if options.warm_throughput:
        yield "warm_throughput", *_warm(options.warm_throughput, description.get("WarmThroughput") or {})
    tags = {tag["Key"]: tag["Value"] for tag in answers.get("list_tags_of_resource", {}).get("Tags", [])}
    for name, value in options.tags.items():
        yield f"tag {name}", value, tags.get(name, "not set")


def _billing(options: TableOptions, description: dict[str, Any]) -> tuple[str, str]:
    there = (description.get("BillingModeSummary") or {}).get("BillingMode", "PROVISIONED")
    wanted = "PROVISIONED" if options.provisioned else "PAY_PER_REQUEST"
    return wanted.lower(), str(there).lower()


def _stream(description: dict[str, Any]) -> str:
    stream = description.get("StreamSpecification") or {}
    return str(stream.get("StreamViewType", "off")).lower() if stream.get("StreamEnabled") else "off"


def _warm(units: Units, throughput: dict[str, Any]) -> tuple[str, str]:
    """The requested value if the table is at least as warm: AWS never lowers it."""
    there = (int(throughput.get("ReadUnitsPerSecond", 0)), int(throughput.get("WriteUnitsPerSecond", 0)))
    wanted = (units.read, units.write)
    shown = there if there[0] < wanted[0] or there[1] < wanted[1] else wanted
    return f"{wanted[0]}/{wanted[1]}", f"{shown[0]}/{shown[1]}"


def _switch(on: bool) -> str:
    return "on" if on else "off"


# ── Global indexes of an existing table: which to add and which to remove, one at a time ──


class IndexChanges(Struct, frozen=True):
    """`cannot`: by index, why it cannot be altered."""

    add: tuple[Index, ...]
    remove: tuple[str, ...]
    cannot: dict[str, str]


def index_changes(design: TableDesign, description: dict[str, Any]) -> IndexChanges:
    there = {index["IndexName"]: index for index in description.get("GlobalSecondaryIndexes") or []}
    local = {index["IndexName"] for index in description.get("LocalSecondaryIndexes") or []}
    wanted = {index.name: index for index in design.indexes}
    types = _types_in(description)
    # An attribute used only by a removed index is no longer defined.
    cannot = dict(_cannot(design, there, local, types))
    leaving = {name for name, index in there.items() if index.get("IndexStatus") == "DELETING"}
    return IndexChanges(
        add=tuple(
            index
            for name, index in wanted.items()
            if not index.local and name not in cannot and (name not in there or name in leaving)
        ),
        remove=tuple(sorted(there.keys() - wanted.keys() - leaving)),
        cannot=cannot,
    )


def _types_in(description: dict[str, Any]) -> dict[str, str]:
    defined = description.get("AttributeDefinitions", [])
    return {one["AttributeName"]: one["AttributeType"] for one in defined}


_ALONE = "a local index is made with its table alone; make a global one, or create another table"
_NEITHER = "neither can be altered; write the index under another name, let its patterns use that one, and remove this one"


def _cannot(
    design: TableDesign, there: dict[str, dict[str, Any]], local: set[str], types: dict[str, str]
) -> Iterator[tuple[str, str]]:
    wanted = {index.name: index for index in design.indexes}
    for name in sorted(local - wanted.keys()):
        yield name, f"it is a local index, and the mapping has none of that name: {_ALONE}"
    for name, index in wanted.items():
        if index.local:
            if name not in local:
                yield name, f"it is missing: {_ALONE}"
        elif name in there:
            definition = there[name]
            same_key = definition["KeySchema"] == key_schema(index.partition, index.sort)
            if not same_key or _projected(definition["Projection"]) != _projected(projection(index)):
                part = "projection" if same_key else "key"
                yield name, f"its {part} is another one in the table: {_NEITHER}"
        for one in index.attributes:
            # DynamoDB accepts such a definition, and keeps the earlier type.
            known = types.get(one.name, TYPES[one.type])
            if known != TYPES[one.type]:
                what = f"{one.name} is of type {known} in the table, and {TYPES[one.type]} in the mapping"
                yield name, f"{what}: an attribute has one type; take one of another name"


def _projected(definition: dict[str, Any]) -> tuple[str, frozenset[str]]:
    return str(definition.get("ProjectionType", "ALL")), frozenset(definition.get("NonKeyAttributes", []))


def addition(design: TableDesign, index: Index, options: TableOptions) -> dict[str, Any]:
    """UpdateTable's parameters. It accepts definitions of the new index's attributes only."""
    alone = replace(design, indexes=(index,))
    request = creation_request(alone, options)
    names = {attribute.name for attribute in index.attributes}
    return {
        "TableName": design.name,
        "AttributeDefinitions": [
            one for one in request["AttributeDefinitions"] if one["AttributeName"] in names
        ],
        "GlobalSecondaryIndexUpdates": [{"Create": request["GlobalSecondaryIndexes"][0]}],
    }


def removal(design: TableDesign, name: str) -> dict[str, Any]:
    return {"TableName": design.name, "GlobalSecondaryIndexUpdates": [{"Delete": {"IndexName": name}}]}


# ── Differences of an existing table from the mapping ──


def indexes_of(description: dict[str, Any]) -> list[dict[str, Any]]:
    kinds = ("GlobalSecondaryIndexes", "LocalSecondaryIndexes")
    return [index for kind in kinds for index in description.get(kind) or []]


def table_differences(
    design: TableDesign, description: dict[str, Any], ttl: str | None
) -> Iterator[tuple[str, str]]:
    types = _types_in(description)
    wanted = _shown_design(design.key[:1], design.key[1:])
    there = _shown(description.get("KeySchema", []), types)
    if wanted != there:
        yield "key", f"its key is {wanted} in the mapping and {there} in the table"
    present = {definition["IndexName"]: definition for definition in indexes_of(description)}
    for index in design.indexes:
        if index.name not in present:
            yield f"index {index.name}", f"index {index.name} is missing in the table"
            continue
        yield from _index_differences(index, present.pop(index.name), types)
    for name in sorted(present):
        yield f"index {name}", _not_in_mapping(name)
    if ttl != design.ttl:
        yield "ttl", f"TTL is {_on(design.ttl)} in the mapping and {_on(ttl)} in the table"


def extra_indexes(design: TableDesign, description: dict[str, Any]) -> Iterator[str]:
    """Indexes that no item of the mapping needs; another revision may. A local one limits each item collection's
    size.
    """
    wanted = {index.name for index in design.indexes}
    for index in description.get("GlobalSecondaryIndexes") or []:
        if index["IndexName"] not in wanted:
            yield _not_in_mapping(index["IndexName"])


def _not_in_mapping(name: str) -> str:
    return f"index {name} is in the table and not in the mapping"


def _index_differences(
    index: Index, description: dict[str, Any], types: dict[str, str]
) -> Iterator[tuple[str, str]]:
    wanted, there = _shown_design(index.partition, index.sort), _shown(description["KeySchema"], types)
    if wanted != there:
        what = f"the key of index {index.name} is {wanted} in the mapping and {there} in the table"
        yield f"index {index.name}", what
    ours, theirs = _projection_shown(projection(index)), _projection_shown(description.get("Projection", {}))
    if ours != theirs:
        what = f"index {index.name} projects {ours} in the mapping and {theirs} in the table"
        yield f"index {index.name}", what


def _shown_design(partition: tuple[KeyAttribute, ...], sort: tuple[KeyAttribute, ...]) -> str:
    types = {attribute.name: TYPES[attribute.type] for attribute in (*partition, *sort)}
    return _shown(key_schema(partition, sort), types)


def _shown(schema: list[dict[str, str]], types: dict[str, str]) -> str:
    return ", ".join(
        f"{element['AttributeName']} ({element['KeyType']} {types.get(element['AttributeName'], '?')})"
        for element in schema
    )


def _projection_shown(projected: dict[str, Any]) -> str:
    kind = str(projected.get("ProjectionType", "ALL"))
    names = ", ".join(sorted(projected.get("NonKeyAttributes", [])))
    return f"INCLUDE {names}" if kind == "INCLUDE" else kind


def _on(attribute: str | None) -> str:
    return f"on {attribute}" if attribute else "off"


def unsettled(description: dict[str, Any]) -> Iterator[str]:
    for index in description.get("GlobalSecondaryIndexes") or []:
        name, status = index["IndexName"], index.get("IndexStatus", "ACTIVE")
        if status == "CREATING" and index.get("Backfilling"):
            items = index.get("ItemCount", 0)
            yield f"index {name} is filled by DynamoDB ({items:,} entries by its last count)"
        elif status != "ACTIVE":
            yield f"index {name} is {status}"
    if description["TableStatus"] != "ACTIVE":
        yield f"the table is {description['TableStatus']}"
