"""`migrator doctor --probe`: creates a table, tries every assumption on it, and deletes it."""

from __future__ import annotations

import gzip
import json
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any, Literal

from msgspec import Struct

from migrator.cli.command_line import print_json
from migrator.cli.options import need_yes, print_folded, say, stdout, stop_on_signals
from migrator.cli.text import table_of
from migrator.runtime.errors import CLEAN, DIFFERENT, Interrupted, SettingsError, StoppedError
from migrator.settings.roles import ROLES, Rights, TablePlace, policy
from migrator.stages.session.job import client_of, own_words, read_job

State = Literal["holds", "differs", "not there", "not tried"]
MOST_REQUESTS = 1_000
"""More than all assumptions send together with the waits for the stream."""
INDEX = "by-gpk"
WAIT_S = 120.0
"""How long a record of the stream is waited for."""
IMPORT_WAIT_S = 400.0
"""How long the end of an import is waited for."""
_NOT_THERE = frozenset(
    {"UnknownOperationException", "NotImplemented", "InvalidAction", "UnrecognizedClientException", ""}
)
"""Codes by which a server names a request that it does not know; '' of one that does not know the service."""


class ExhaustedError(Exception): ...


class UntriedError(Exception):
    def __init__(self, state: State, why: str) -> None:
        super().__init__(why)
        self.state = state


class Bucket(Struct, frozen=True):
    client: Any
    name: str
    key: str


@dataclass
class Probe:
    """The table under test.

    `call`: sends and counts one request; raises boto3's errors.
    `acting`: a client restricted to a policy; None without a role.
    `local`: the server is not AWS.
    `begun`: ARN of the import, '' before it.
    `is_put`: the import's file is in the bucket.
    """

    client: Any
    streams: Any
    table: str
    wait: Callable[[float], None]
    sent: int = 0
    bucket: Bucket | None = None
    acting: Callable[[str], Any] | None = None
    local: bool = False
    begun: str = ""
    is_put: bool = False
    _number: Iterator[int] = field(default_factory=lambda: iter(range(1, 1_000_000)))

    def call(self, operation: str, client: Any = None, **words: Any) -> Mapping[str, Any]:
        if self.sent >= MOST_REQUESTS:
            raise ExhaustedError
        self.sent += 1
        answer: Mapping[str, Any] = getattr(client or self.client, operation)(**words)
        return answer

    def on_table(self, operation: str, **words: Any) -> Mapping[str, Any]:
        return self.call(operation, TableName=self.table, **words)

    @property
    def imported(self) -> str:
        return f"{self.table}-imported"

    def refusal(self, operation: str, client: Any = None, **words: Any) -> Any:
        try:
            self.call(operation, client, **words)
        except self.client.exceptions.ClientError as error:
            return error
        return None

    def key(self, sort: str = "a") -> dict[str, Any]:
        return {"pk": {"S": f"p{next(self._number)}"}, "sk": {"S": sort}}

    def put(self, item: Mapping[str, Any], **words: Any) -> Any:
        return self.refusal("put_item", TableName=self.table, Item=item, **words)

    def is_there(self, key: Mapping[str, Any]) -> bool:
        return "Item" in self.on_table("get_item", Key=key, ConsistentRead=True)


class Assumption(Struct, frozen=True):
    """`seen`: the observed behaviour, in the words of `expected` if it matches."""

    name: str
    expected: str
    seen: Callable[[Probe], str]


class Result(Struct, frozen=True):
    assumption: Assumption
    seen: str
    state: State


def result_of(assumption: Assumption, probe: Probe) -> Result:
    try:
        seen = assumption.seen(probe)
    except UntriedError as error:
        return Result(assumption, str(error), error.state)
    except probe.client.exceptions.ClientError as error:
        code = _code(error)
        return Result(
            assumption, code or "an answer without a code", "not there" if code in _NOT_THERE else "differs"
        )
    return Result(assumption, seen, "holds" if seen == assumption.expected else "differs")


def _code(error: Any) -> str:
    return "taken" if error is None else str(error.response.get("Error", {}).get("Code", ""))


def _taken(*errors: Any) -> str:
    return ", ".join("taken" if error is None else "refused" for error in errors)


# ── conditions ──


def _condition(probe: Probe) -> str:
    key = probe.key()
    probe.put({**key, "v": {"N": "1"}})
    error = probe.put(
        {**key, "v": {"N": "2"}},
        ConditionExpression="attribute_not_exists(pk)",
        ReturnValuesOnConditionCheckFailure="ALL_OLD",
    )
    item = {} if error is None else error.response.get("Item", {})
    return f"{_code(error)} with the item" if item.get("v") == {"N": "1"} else _code(error)


def _consistent(probe: Probe) -> str:
    key = probe.key()
    seen = []
    for _ in range(5):
        probe.put(key)
        seen.append(probe.is_there(key))
        probe.on_table("delete_item", Key=key)
        seen.append(not probe.is_there(key))
    return "each write is read" if all(seen) else "a write is not read"


# ── batches ──


def _batch(probe: Probe, count: int) -> Any:
    requests = [{"PutRequest": {"Item": probe.key()}} for _ in range(count)]
    return probe.refusal("batch_write_item", RequestItems={probe.table: requests})


def _batches(probe: Probe) -> str:
    return _taken(_batch(probe, 25), _batch(probe, 26))


def _batch_of_equal_keys(probe: Probe) -> str:
    request = {"PutRequest": {"Item": probe.key()}}
    return _code(probe.refusal("batch_write_item", RequestItems={probe.table: [request, request]}))


def _unprocessed(probe: Probe) -> str:
    request = {"PutRequest": {"Item": probe.key()}}
    answer = probe.call("batch_write_item", RequestItems={probe.table: [request]})
    return "named" if "UnprocessedItems" in answer else "not named"


def _batch_get(probe: Probe) -> str:
    def error(count: int) -> Any:
        keys = [probe.key() for _ in range(count)]
        return probe.refusal("batch_get_item", RequestItems={probe.table: {"Keys": keys}})

    return _taken(error(100), error(101))


# ── transactions ──


def _transaction(probe: Probe, keys: Sequence[Mapping[str, Any]], token: str = "") -> Any:
    puts = [
        {
            "Put": {
                "TableName": probe.table,
                "Item": key,
                "ConditionExpression": "attribute_not_exists(pk)",
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
        }
        for key in keys
    ]
    words = {"ClientRequestToken": token} if token else {}
    return probe.refusal("transact_write_items", TransactItems=puts, **words)


def _cancelled(probe: Probe) -> str:
    there, free = probe.key(), probe.key()
    probe.put(there)
    error = _transaction(probe, [free, there])
    if error is None:
        return "taken"
    reasons = error.response.get("CancellationReasons", [])
    codes = [reason.get("Code", "") for reason in reasons]
    item = "Item" in reasons[-1] if reasons else False
    rest = "nothing written" if not probe.is_there(free) else "a part written"
    return f"{', '.join(codes)}; {'the item is named' if item else 'no item'}; {rest}"


def _token(probe: Probe) -> str:
    key, token = probe.key(), f"probe-{time.time_ns()}"
    return _taken(_transaction(probe, [key], token), _transaction(probe, [key], token))


def _most_in_a_transaction(probe: Probe) -> str:
    return _taken(*(_transaction(probe, [probe.key() for _ in range(count)]) for count in (100, 101)))


# ── PartiQL ──


def _insert(probe: Probe) -> str:
    there, free = probe.key(), probe.key()
    probe.put(there)
    codes = _inserted(probe, there, free)
    return ", ".join(codes) if probe.is_there(free) else "not inserted"


def _inserted(probe: Probe, *keys: Mapping[str, Any], client: Any = None) -> list[str]:
    text = f"INSERT INTO \"{probe.table}\" VALUE {{'pk': ?, 'sk': ?}}"
    statements = [{"Statement": text, "Parameters": [key["pk"], key["sk"]]} for key in keys]
    answers = probe.call("batch_execute_statement", client, Statements=statements)["Responses"]
    return [str(answer.get("Error", {}).get("Code", "inserted")) for answer in answers]


# ── reading ──


def _reversed_between(probe: Probe) -> str:
    condition = "pk = :p AND sk BETWEEN :a AND :b"
    bound = {":p": {"S": "p"}, ":a": {"S": "b"}, ":b": {"S": "a"}}
    words = {"KeyConditionExpression": condition, "ExpressionAttributeValues": bound}
    return _code(probe.refusal("query", TableName=probe.table, **words))


def _order(probe: Probe) -> str:
    key = probe.key()
    for sort in ("b", "a", "é", "Z"):
        probe.put({**key, "sk": {"S": sort}})
    answer = probe.on_table(
        "query",
        KeyConditionExpression="pk = :p",
        ExpressionAttributeValues={":p": key["pk"]},
        ConsistentRead=True,
    )
    return " ".join(item["sk"]["S"] for item in answer["Items"])


def _index(probe: Probe) -> str:
    key = probe.key()
    probe.put({**key, "gpk": {"S": f"g-{key['pk']['S']}"}})
    for _ in range(30):
        answer = probe.on_table(
            "query",
            IndexName=INDEX,
            KeyConditionExpression="gpk = :g",
            ExpressionAttributeValues={":g": {"S": f"g-{key['pk']['S']}"}},
        )
        if answer["Items"]:
            return "found"
        probe.wait(1.0)
    return "not found within 30 s"


def _segments(probe: Probe) -> str:
    found = []
    for segment in range(4):
        start: Mapping[str, Any] | None = None
        while True:
            words = {"ExclusiveStartKey": start} if start else {}
            answer = probe.on_table("scan", Segment=segment, TotalSegments=4, ConsistentRead=True, **words)
            found += [(item["pk"]["S"], item["sk"]["S"]) for item in answer["Items"]]
            start = answer.get("LastEvaluatedKey")
            if start is None:
                break
    return "each item once" if found and len(found) == len(set(found)) else "an item twice, or none"


# ── limits ──


def _key_bytes(probe: Probe) -> str:
    keys = [("p" * 2048, "a"), ("p" * 2049, "a"), ("p", "s" * 1024), ("p", "s" * 1025), ("", "a")]
    return _taken(*(probe.put({"pk": {"S": pk}, "sk": {"S": sk}}) for pk, sk in keys))


def _item_bytes(probe: Probe) -> str:
    key = probe.key()
    own = sum(len(name) + len(value["S"]) for name, value in key.items()) + len("v")
    return _taken(*(probe.put({**key, "v": {"S": "x" * (409_600 - own + more)}}) for more in (0, 1)))


def _numbers(probe: Probe) -> str:
    numbers = ("1" * 38, "1" * 39, "1E125", "1E126", "-0.5", "NaN")
    return _taken(*(probe.put({**probe.key(), "v": {"N": number}}) for number in numbers))


def _empty_values(probe: Probe) -> str:
    values: tuple[dict[str, Any], ...] = (
        {"S": ""},
        {"B": b""},
        {"M": {}},
        {"L": []},
        {"SS": []},
        {"M": {"": {"S": "x"}}},
    )
    return _taken(*(probe.put({**probe.key(), "v": value}) for value in values))


def _depth(probe: Probe) -> str:
    def nested(levels: int) -> dict[str, Any]:
        value: dict[str, Any] = {"S": "x"}
        for _ in range(levels):
            value = {"L": [value]}
        return value

    return _taken(*(probe.put({**probe.key(), "v": nested(levels)}) for levels in (31, 32)))


def _units(probe: Probe) -> str:
    answer = probe.on_table(
        "put_item", Item={**probe.key(), "v": {"S": "x" * 1_500}}, ReturnConsumedCapacity="INDEXES"
    )
    consumed = answer.get("ConsumedCapacity", {})
    return f"{consumed.get('Table', {}).get('CapacityUnits', 0):g} of the table"


# ── apart from the items ──


def _ttl(probe: Probe) -> str:
    probe.on_table(
        "update_time_to_live", TimeToLiveSpecification={"Enabled": True, "AttributeName": "expires"}
    )
    described = probe.on_table("describe_time_to_live")["TimeToLiveDescription"]
    return "on" if described["TimeToLiveStatus"] in ("ENABLED", "ENABLING") else "off"


def _recovery(probe: Probe) -> str:
    probe.on_table(
        "update_continuous_backups", PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
    )
    described = probe.on_table("describe_continuous_backups")["ContinuousBackupsDescription"]
    status = described["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"]
    return "on" if status == "ENABLED" else "off"


def _stream(probe: Probe) -> str:
    key = probe.key()
    probe.put({**key, "v": {"N": "1"}})
    probe.put({**key, "v": {"N": "2"}})
    arn = probe.on_table("describe_table")["Table"]["LatestStreamArn"]
    ends_at = time.monotonic() + WAIT_S
    while time.monotonic() < ends_at:
        for record in _records(probe, arn):
            images = record["dynamodb"]
            if images.get("Keys") == key and "OldImage" in images:
                both = images["OldImage"]["v"], images["NewImage"]["v"]
                return "both images" if both == ({"N": "1"}, {"N": "2"}) else "other images"
        probe.wait(2.0)
    return f"no record within {WAIT_S:.0f} s"


def _records(probe: Probe, arn: str) -> Iterator[Mapping[str, Any]]:
    shards = probe.call("describe_stream", probe.streams, StreamArn=arn)["StreamDescription"]["Shards"]
    for shard in shards:
        iterator = probe.call(
            "get_shard_iterator",
            probe.streams,
            StreamArn=arn,
            ShardId=shard["ShardId"],
            ShardIteratorType="TRIM_HORIZON",
        )["ShardIterator"]
        yield from probe.call("get_records", probe.streams, ShardIterator=iterator)["Records"]


# ── the import: begun first and read last, since it takes minutes on AWS ──

_FILE = [{"pk": {"S": "i"}, "sk": {"S": f"{number}"}, "v": {"N": "1.5"}} for number in range(2)]


def _begin_import(probe: Probe) -> str:
    if (bucket := probe.bucket) is None:
        raise UntriedError("not tried", "give --probe --to s3://bucket/prefix")
    lines = "".join(f"{json.dumps({'Item': item})}\n" for item in _FILE)
    body = gzip.compress(lines.encode())
    probe.call("put_object", bucket.client, Bucket=bucket.name, Key=bucket.key, Body=body)
    probe.is_put = True
    begun = probe.call(
        "import_table",
        S3BucketSource={"S3Bucket": bucket.name, "S3KeyPrefix": bucket.key},
        InputFormat="DYNAMODB_JSON",
        InputCompressionType="GZIP",
        TableCreationParameters={
            "TableName": probe.imported,
            "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
            "KeySchema": [
                {"AttributeName": "pk", "KeyType": "HASH"},
                {"AttributeName": "sk", "KeyType": "RANGE"},
            ],
            "BillingMode": "PAY_PER_REQUEST",
        },
    )["ImportTableDescription"]
    probe.begun = begun["ImportArn"]
    return "begun"


def _end_import(probe: Probe) -> str:
    if not probe.begun:
        raise UntriedError("not tried", "no import was begun")
    ends_at = time.monotonic() + IMPORT_WAIT_S
    while True:
        told = probe.call("describe_import", ImportArn=probe.begun)["ImportTableDescription"]
        if told["ImportStatus"] != "IN_PROGRESS" or time.monotonic() > ends_at:
            break
        probe.wait(0.2 if probe.local else 5.0)
    there = [
        probe.call("get_item", TableName=probe.imported, Key={key: item[key] for key in ("pk", "sk")})
        for item in (_FILE if told["ImportStatus"] == "COMPLETED" else ())
    ]
    same = [answer.get("Item") for answer in there] == _FILE
    counts = f"{told.get('ImportedItemCount', 0)} of {told.get('ProcessedItemCount', 0)} items"
    return f"{told['ImportStatus']}, {counts}, {'as in the file' if same else 'not as in the file'}"


# ── the actions that a policy allows ──

_NOTHING = {"Version": "2012-10-17", "Statement": {"Effect": "Deny", "Action": "*", "Resource": "*"}}
_DENIED = ("AccessDeniedException", "AccessDenied")


def _asked(probe: Probe) -> dict[str, tuple[str, dict[str, Any]]]:
    """By right, a request that needs it and leaves at most an item behind."""
    table, key = {"TableName": probe.table}, probe.key()
    item = {"PutRequest": {"Item": key}}
    return {
        "DescribeTable": ("describe_table", table),
        "DescribeTimeToLive": ("describe_time_to_live", table),
        "GetItem": ("get_item", {**table, "Key": key}),
        "BatchGetItem": ("batch_get_item", {"RequestItems": {probe.table: {"Keys": [key]}}}),
        "Query": (
            "query",
            {**table, "KeyConditionExpression": "pk = :p", "ExpressionAttributeValues": {":p": key["pk"]}},
        ),
        "Scan": ("scan", {**table, "Limit": 1}),
        "PutItem": ("put_item", {**table, "Item": key}),
        "UpdateItem": ("update_item", {**table, "Key": key}),
        "DeleteItem": ("delete_item", {**table, "Key": key}),
        "BatchWriteItem": ("batch_write_item", {"RequestItems": {probe.table: [item]}}),
    }


def _need_policies(probe: Probe) -> None:
    if probe.acting is None:
        raise UntriedError("not tried", "the job has no role for it; write target: {role_arn: …}")
    error = probe.refusal("describe_table", _acting(probe, _NOTHING), TableName=probe.table)
    if probe.local and _code(error) not in _DENIED:
        raise UntriedError("not there", "the server has no policies of sessions")


def _acting(probe: Probe, policy: Mapping[str, Any]) -> Any:
    assert probe.acting is not None
    probe.sent += 1  # its first request also goes to STS
    return probe.acting(json.dumps(policy, separators=(",", ":")))


def _policy(probe: Probe, name: str, *rights: str) -> Mapping[str, Any]:
    place = TablePlace(probe.table, probe.client.meta.region_name)
    document: dict[str, Any] = json.loads(policy(name, Rights(rights), place, "probe"))
    return document


def _rights(probe: Probe) -> str:
    """For each role: its policy allows its actions, and denies all others, and all on another table."""
    _need_policies(probe)
    asked, other = _asked(probe), {"TableName": f"{probe.table}-other"}
    found = []
    for name, role in ROLES.items():
        if not role.table:
            continue
        client = _acting(probe, _policy(probe, name, *role.table))
        denied = {
            right: _code(probe.refusal(operation, client, **words)) in _DENIED
            for right, (operation, words) in asked.items()
        }
        found += [
            f"{name}: {right} {'denied' if is_denied else 'taken'}"
            for right, is_denied in denied.items()
            if is_denied == (right in role.table)
        ]
        for operation in ("describe_table", "delete_table"):
            code = _code(probe.refusal(operation, client, **other))
            found += [] if code in _DENIED else [f"{name}: {operation} of another table: {code}"]
    return "; ".join(found) or "as in each policy"


def _insert_alone(probe: Probe) -> str:
    _need_policies(probe)
    client = _acting(probe, _policy(probe, "probe", "PartiQLInsert"))
    (code,) = _inserted(probe, probe.key(), client=client)
    return code


ASSUMPTIONS = (
    Assumption("an import of a file in S3", "begun", _begin_import),
    Assumption("a refused condition", "ConditionalCheckFailedException with the item", _condition),
    Assumption("a consistent read", "each write is read", _consistent),
    Assumption("batches of 25 and 26 items", "taken, refused", _batches),
    Assumption("a batch with one key twice", "ValidationException", _batch_of_equal_keys),
    Assumption("unprocessed items in an answer", "named", _unprocessed),
    Assumption("batch reads of 100 and 101 keys", "taken, refused", _batch_get),
    Assumption(
        "a cancelled transaction",
        "None, ConditionalCheckFailed; the item is named; nothing written",
        _cancelled,
    ),
    Assumption("a transaction twice with one token", "taken, taken", _token),
    Assumption("transactions of 100 and 101 items", "taken, refused", _most_in_a_transaction),
    Assumption("PartiQL inserts, the first over an item", "DuplicateItem, inserted", _insert),
    Assumption("BETWEEN with reversed bounds", "ValidationException", _reversed_between),
    Assumption("order of sort keys b, a, é, Z", "Z a b é", _order),
    Assumption("an item in a global index", "found", _index),
    Assumption("a scan in 4 segments", "each item once", _segments),
    Assumption(
        "keys of 2048/2049, 1024/1025 and 0 bytes", "taken, refused, taken, refused, refused", _key_bytes
    ),
    Assumption("items of 400 KB and one byte more", "taken, refused", _item_bytes),
    Assumption(
        "38 and 39 digits, 1E125, 1E126, -0.5, NaN",
        "taken, refused, taken, refused, taken, refused",
        _numbers,
    ),
    Assumption(
        "empty text, bytes, map, list, set, name",
        "taken, taken, taken, taken, refused, refused",
        _empty_values,
    ),
    Assumption("values of 32 and 33 levels", "taken, refused", _depth),
    Assumption("write units of 1.5 KB", "2 of the table", _units),
    Assumption("time to live", "on", _ttl),
    Assumption("point-in-time recovery", "on", _recovery),
    Assumption("a changed item in the stream", "both images", _stream),
    Assumption("rights of each role's policy", "as in each policy", _rights),
    Assumption("an insert with the right PartiQLInsert alone", "inserted", _insert_alone),
    Assumption("the items of the import", "COMPLETED, 2 of 2 items, as in the file", _end_import),
)

MOST_S = 600
_DELETE_TRIES, _DELETE_WAIT_S = 30, 2.0
_COSTS = (
    f"the probe makes a table of its own, sends at most {MOST_REQUESTS:,} requests within {MOST_S // 60} minutes, and"
    " deletes the table; on AWS it costs less than one US dollar"
)
_IMPORTS = "; it puts an object into the bucket, imports it into a second table, and deletes both"


def probe(job: Path, *, bucket: str | None, yes: bool, as_json: bool) -> int:
    read = read_job(job, asks_source=False)
    place = _place(bucket) if bucket is not None else None
    say(_COSTS + (_IMPORTS if place else ""))
    if read.target.endpoint is None and not yes:
        need_yes("make this table?", "the probe makes a table on AWS")
    client, streams = client_of(read, "dynamodb"), client_of(read, "dynamodbstreams")
    with stop_on_signals() as stop, own_words(client, "migrator-probe-…"), _table(client, stop) as name:
        probing = Probe(client, streams, name, lambda wait_s: _wait(stop, wait_s))
        probing.local = read.target.endpoint is not None
        if read.target.role_arn is not None:
            probing.acting = lambda policy: client_of(read, "dynamodb", policy)
        if place is not None:
            key = f"{place[1]}{probing.table}.json.gz"
            probing.bucket = Bucket(client_of(read, "s3"), place[0], key)
        with _without_import(probing):
            results = list(_results(probing, stop))
    differing = [result for result in results if result.state == "differs"]
    if as_json:
        print_json(
            {
                "requests": probing.sent,
                "assumptions": [
                    {
                        "assumption": result.assumption.name,
                        "expected": result.assumption.expected,
                        "seen": result.seen,
                        "state": result.state,
                    }
                    for result in results
                ],
            }
        )
        return DIFFERENT if differing else CLEAN
    _print(results)
    counts = Counter(result.state for result in results)
    print_folded(
        f"{counts['holds']} of {len(results)} assumptions hold, {len(differing)} differ, {counts['not there']} are not"
        f" offered here, {counts['not tried']} were not tried; {probing.sent} requests"
    )
    return DIFFERENT if differing else CLEAN


def _place(bucket: str) -> tuple[str, str]:
    scheme, _, path = bucket.partition("://")
    name, _, prefix = path.strip("/").partition("/")
    if scheme != "s3" or not name:
        raise SettingsError(f"--to {bucket} does not name a bucket; write s3://bucket/prefix")
    return name, f"{prefix}/" if prefix else ""


@contextmanager
def _without_import(probing: Probe) -> Iterator[None]:
    try:
        yield
    finally:
        if probing.begun:
            _delete(probing.client, probing.imported)
        if (bucket := probing.bucket) is not None and probing.is_put:
            bucket.client.delete_object(Bucket=bucket.name, Key=bucket.key)


def _results(probing: Probe, stop: Event) -> Iterator[Result]:
    ends_at = time.monotonic() + MOST_S
    for assumption in ASSUMPTIONS:
        if time.monotonic() > ends_at:
            raise StoppedError(f"the probe ended at its bound of {MOST_S // 60} minutes")
        if stop.is_set():
            raise Interrupted("stopped; the table of the probe is deleted")
        try:
            yield result_of(assumption, probing)
        except ExhaustedError:
            raise StoppedError(f"the probe ended at its bound of {MOST_REQUESTS} requests") from None


def _wait(stop: Event, wait_s: float) -> None:
    if stop.wait(wait_s):
        raise Interrupted("stopped; the table of the probe is deleted")


@contextmanager
def _table(client: Any, stop: Event) -> Iterator[str]:
    name = f"migrator-probe-{secrets.token_hex(6)}"
    attributes = [{"AttributeName": one, "AttributeType": "S"} for one in ("pk", "sk", "gpk")]
    client.create_table(
        TableName=name,
        AttributeDefinitions=attributes,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        GlobalSecondaryIndexes=[
            {
                "IndexName": INDEX,
                "KeySchema": [{"AttributeName": "gpk", "KeyType": "HASH"}],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )
    try:
        while client.describe_table(TableName=name)["Table"]["TableStatus"] != "ACTIVE":
            _wait(stop, 0.5)
        yield name
    finally:
        _delete(client, name)


def _delete(client: Any, name: str) -> None:
    """Retry, since DynamoDB refuses to delete a table still being created. Raises: the last error."""
    for _ in range(_DELETE_TRIES):
        try:
            client.delete_table(TableName=name)
            return
        except client.exceptions.ResourceInUseException:
            time.sleep(_DELETE_WAIT_S)
    say(f"warning: table {name} is not deleted yet; delete it")
    client.delete_table(TableName=name)


def _print(results: list[Result]) -> None:
    rows = (
        (one.state, one.assumption.name, one.assumption.expected, "" if one.state == "holds" else one.seen)
        for one in results
    )
    stdout().print(table_of(("", "assumption", "expected", "seen"), rows))
