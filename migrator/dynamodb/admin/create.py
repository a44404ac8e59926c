"""Table creation: definition, options, limits of the account, and what an endpoint can do."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, TypeAlias

from botocore.exceptions import BotoCoreError, ClientError

from migrator.dynamodb.control import control_key
from migrator.dynamodb.failures import error_code, in_words
from migrator.mapping.items.wire import encode
from migrator.mapping.model.edges import Probe
from migrator.mapping.model.table import Index, KeyAttribute, TableDesign, Value
from migrator.settings.roles import TableRights
from migrator.settings.source import TableOptions, Units

# ── The requests that make a mapping's table, with the options that the job asks for ──

TYPES = {"text": "S", "number": "N", "binary": "B"}
Request = tuple[str, dict[str, Any]]
"""An operation of the client and its parameters."""


def creation_request(design: TableDesign, options: TableOptions | None = None) -> dict[str, Any]:
    """CreateTable's parameters: all indexes at once, and every option that CreateTable takes."""
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
    """Requests for what CreateTable does not take, to be sent when the table is ACTIVE."""
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
    """What ImportTable takes of CreateTable's parameters. Source: API reference, TableCreationParameters."""
    request = creation_request(design, options)
    return {name: request[name] for name in _OF_IMPORTS if name in request}


def requests_after_import(
    design: TableDesign, options: TableOptions, arn: str, missing: Collection[str]
) -> Iterator[Request]:
    """One for each option of CreateTable that ImportTable does not take. `missing`: options that the table lacks."""
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
    """The whole table as parameters of CreateTable, with those that other operations set."""
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
    """The options beside keys, indexes and billing; one that is not asked for is left out."""
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
    """Provisioned capacity, for the table and each global index alike; {} on demand."""
    return (
        {"ProvisionedThroughput": _units(options.provisioned, "CapacityUnits")} if options.provisioned else {}
    )


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


# ── How a table's options differ from those that the job asks for ──

_ON = ("ENABLED", "ENABLING")


def option_differences(
    options: TableOptions, description: dict[str, Any], answers: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """(option, sentence). `description`: of DescribeTable; `answers`: of the operations that `wanted_answers` names."""
    for name, wanted, there in _pairs(options, description, answers):
        if wanted != there:
            yield name, f"{name} is {wanted} in the job and {there} in the table"


def wanted_answers(options: TableOptions) -> list[str]:
    """Operations whose answers are needed to compare; each needs a permission, so no more than needed."""
    wanted = {
        "describe_continuous_backups": True,
        "describe_contributor_insights": options.contributor_insights,
    }
    wanted["list_tags_of_resource"] = bool(options.tags)
    return [operation for operation, needed in wanted.items() if needed]


def _pairs(
    options: TableOptions, description: dict[str, Any], answers: dict[str, Any]
) -> Iterator[tuple[str, str, str]]:
    """(option, as asked for, as it is); what the job does not name is left as it is."""
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
    """As asked for, where the table is as warm or warmer: AWS only ever raises it."""
    there = (int(throughput.get("ReadUnitsPerSecond", 0)), int(throughput.get("WriteUnitsPerSecond", 0)))
    wanted = (units.read, units.write)
    shown = there if there[0] < wanted[0] or there[1] < wanted[1] else wanted
    return f"{wanted[0]}/{wanted[1]}", f"{shown[0]}/{shown[1]}"


def _switch(on: bool) -> str:
    return "on" if on else "off"


# ── Whether the credentials may do what a run does, action by action, on a key that no item has ──

_What: TypeAlias = tuple[str, str]
"""An action, and the index that it is tried on ('' for the table)."""


def probes(client: Any, design: TableDesign, *, write: bool, only: TableRights | None = None) -> list[Probe]:
    """One probe per action. `write`: those too that would write, if there were such an item. `only`: a role's rights,
    each of which has a probe then, also one that cannot be tried.
    """
    key = {attribute.name: _absent_value(attribute) for attribute in design.key}
    writes = _writes(client, design, key)
    calls = _reads(client, design, key) | (writes if write else {})
    if only is not None:
        calls |= _of_definitions(client, design) | ({_CREATE: _create(client, design)} if write else {})
        calls = {what: call for what, call in calls.items() if what in only.named()}
    probed = [_probe(client, design.name, what, call) for what, call in calls.items()]
    if write and (only is None or _INSERT in only.table):
        may_delete = any(probe.action == "DeleteItem" and not probe.refused for probe in probed)
        probed.append(_probe_insert(client, design, key, may_delete=may_delete))
    left = set() if only is None else {*only.named()} - {(probe.action, probe.index) for probe in probed}
    for action, index in sorted(left):
        with_write = not write and (action == _INSERT or (action, index) in {*writes, _CREATE})
        why = (
            "not tried without --write"
            if with_write
            else "not tried: it would change the table, or nothing is there to try it on"
        )
        probed.append(Probe(action, why, index, tried=False))
    return probed


def clock_of(client: Any, design: TableDesign) -> float | None:
    """The service's clock in seconds since 1970, by the Date header of an answer; None where it has none."""
    answer = client.describe_table(TableName=design.name)
    date = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
    return None if date is None else parsedate_to_datetime(date).timestamp()


def _absent_value(attribute: KeyAttribute) -> dict[str, Any]:
    """A key value that no item has."""
    chance = secrets.token_hex(8)
    values: dict[str, Value] = {
        "text": f"migrator-doctor-{chance}",
        "number": -(10**30) - int(chance, 16),
        "binary": f"migrator-doctor-{chance}".encode(),
    }
    return encode(values[attribute.type])


def _reads(client: Any, design: TableDesign, key: dict[str, Any]) -> dict[_What, Callable[[], Any]]:
    table = {"TableName": design.name}
    queries = [partial(client.query, **table, **_absent_partition(design.key[:1]))]
    queries += [
        partial(client.query, **table, IndexName=index.name, **_absent_partition(index.partition))
        for index in design.indexes
    ]
    # An index has an ARN of its own, so that a policy may leave it out.
    named = [("Query", index) for index in ("", *(index.name for index in design.indexes))]
    return {
        ("DescribeTimeToLive", ""): lambda: client.describe_time_to_live(**table),
        ("GetItem", ""): lambda: client.get_item(**table, Key=key),
        **dict(zip(named, queries, strict=True)),
        ("BatchGetItem", ""): lambda: client.batch_get_item(RequestItems={design.name: {"Keys": [key]}}),
        ("Scan", ""): lambda: client.scan(**table, Limit=1),
    }


def _absent_partition(attributes: Sequence[KeyAttribute]) -> dict[str, Any]:
    """The condition of a Query that finds nothing."""
    numbered = list(enumerate(attributes))
    return {
        "KeyConditionExpression": " AND ".join(f"#k{number} = :k{number}" for number, _ in numbered),
        "ExpressionAttributeNames": {f"#k{number}": attribute.name for number, attribute in numbered},
        "ExpressionAttributeValues": {
            f":k{number}": _absent_value(attribute) for number, attribute in numbered
        },
    }


def _writes(client: Any, design: TableDesign, key: dict[str, Any]) -> dict[_What, Callable[[], Any]]:
    delete = {"DeleteRequest": {"Key": key}}
    table, source = {"TableName": design.name}, design.source_attribute
    names = {"#k": design.key[0].name}
    exists = {"ConditionExpression": "attribute_exists(#k)", "ExpressionAttributeNames": names}
    update = {
        **exists,
        "ExpressionAttributeNames": {**names, "#own": source},
        "UpdateExpression": "REMOVE #own",
    }
    return {
        ("BatchWriteItem", ""): lambda: client.batch_write_item(RequestItems={design.name: [delete]}),
        ("PutItem", ""): lambda: client.put_item(**table, Item=key, **exists),
        ("DeleteItem", ""): lambda: client.delete_item(**table, Key=key, **exists),
        ("UpdateItem", ""): lambda: client.update_item(**table, Key=key, **update),
    }


_CREATE: _What = ("CreateTable", "")


def _of_definitions(client: Any, design: TableDesign) -> dict[_What, Callable[[], Any]]:
    """What is asked of the table's options, and of the table itself."""
    table = {"TableName": design.name}

    def tags() -> None:
        arn = client.describe_table(**table)["Table"]["TableArn"]
        client.list_tags_of_resource(ResourceArn=arn)

    return {
        ("DescribeTable", ""): lambda: client.describe_table(**table),
        ("DescribeContinuousBackups", ""): lambda: client.describe_continuous_backups(**table),
        ("DescribeContributorInsights", ""): lambda: client.describe_contributor_insights(**table),
        ("ListTagsOfResource", ""): tags,
    }


def _create(client: Any, design: TableDesign) -> Callable[[], Any]:
    """A CreateTable of the table that is there, which DynamoDB refuses to who may create it."""
    return lambda: client.create_table(**creation_request(design))


_INSERT = "PartiQLInsert"
_NOT_TRIED = "not tried: without DeleteItem the item of the probe would stay"


def _probe_insert(client: Any, design: TableDesign, key: dict[str, Any], *, may_delete: bool) -> Probe:
    """An INSERT of PartiQL takes no condition, but an item that is there refuses it: the control item, where there is one.

    Where there is none a random key is written, which is deleted again whatever the answer was.
    """
    own = {name: encode(value) for name, value in control_key(design).items()}
    try:
        is_there = "Item" in client.get_item(TableName=design.name, Key=own, ConsistentRead=True)
    except (ClientError, BotoCoreError):
        is_there = False
    if is_there:
        return _probe(client, design.name, (_INSERT, ""), lambda: _insert(client, design, own))
    if not may_delete:
        return Probe(_INSERT, _NOT_TRIED, tried=False)

    def call() -> None:
        try:
            _insert(client, design, key)
        finally:
            client.delete_item(TableName=design.name, Key=key)

    return _probe(client, design.name, (_INSERT, ""), call)


def _insert(client: Any, design: TableDesign, key: dict[str, Any]) -> None:
    names = ", ".join(f"'{attribute.name}': ?" for attribute in design.key)
    statement = {
        "Statement": f'INSERT INTO "{design.name}" VALUE {{{names}}}',
        "Parameters": list(key.values()),
    }
    for response in client.batch_execute_statement(Statements=[statement])["Responses"]:
        if error := response.get("Error"):
            # The same as an answer that is refused as a whole.
            refusal = {"Error": {"Code": f"{error['Code']}Exception", "Message": error.get("Message", "")}}
            raise ClientError(refusal, _INSERT)


_MAY = frozenset({"ConditionalCheckFailedException", "DuplicateItemException", "ResourceInUseException"})
"""Refusals that only those get who may do it."""


def _probe(client: Any, table: str, what: _What, call: Callable[[], Any]) -> Probe:
    action, index = what
    try:
        call()
    except ClientError as error:
        if error_code(error) not in _MAY:
            return Probe(action, str(in_words(error, action, table, client.meta.endpoint_url)), index)
    except BotoCoreError as error:
        return Probe(action, str(in_words(error, action, table, client.meta.endpoint_url)), index)
    return Probe(action, index=index)
