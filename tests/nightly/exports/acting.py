"""A shop whose commands run as a user of IAM of its own, with exactly a role's policy or with one right of it taken away."""

from __future__ import annotations

import json
import re
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest

from migrator.features.recover.work import raise_epoch
from migrator.mapping.model.evidence import Move, PatternPhase, State
from migrator.settings import job as job_settings
from migrator.stages.core.ownership import keep_direct
from tests.journeys.command import Project
from tests.journeys.cutover import MAPPING, OTHER, PATTERN, cutover_shop, desk_of, journal_of

ROOT = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
OBJECTS, ITEMS = "objects-of-roles", "items-of-roles"
"""The job's bucket, and the one that exported items are in; each shop has a prefix of its own in both."""
MANY, BY_TOTAL = "customers_by_ids", "invoices_by_total"
_MORE = f"""\
  {MANY}:
    params: {{ids: list of integer}}
    batch_get: {{key: ["C#{{ids}}", META]}}
    returns: [name]
    order: any
    sql: SELECT name FROM customer WHERE id IN :ids
  {BY_TOTAL}:
    params: {{total: integer}}
    query: {{index: ByTotal, key: ["T#{{total}}"]}}
    returns: [id]
    order: any
    sql: SELECT id FROM invoice WHERE total = :total
"""
SHOP = (
    MAPPING.replace("keep: [name]", "keep: [name], attributes: {photo: {from: name, to: s3}}")
    .replace("keep: [total]}", 'keep: [total], ByTotal: ["T#{total}"]}, InvoiceById: {key: ["I#{id}", META]}')
    .replace("key: [PK, SK]", "key: [PK, SK], indexes: {ByTotal: {key: [ByTotalPK]}}")
    + _MORE
)
"""The shop of tests/journeys/cutover.py with a value that it keeps in S3, a pattern by several keys and one by an index."""
PATTERNS: Mapping[str, Mapping[str, Any]] = {
    PATTERN: {"id": 3},
    OTHER: {"customer_id": 3},
    MANY: {"ids": [3, 4]},
    BY_TOTAL: {"total": 5},
}
"""Every pattern, and what it is asked."""


@dataclass(frozen=True, order=True)
class Right:
    """One action of one statement of a policy. `statement`: what it is about (Table, Indexes, Objects, ItemsBucket, …)."""

    statement: str
    action: str

    @property
    def name(self) -> str:
        return self.action.partition(":")[2]

    def __str__(self) -> str:
        return f"{self.action} ({self.statement})"


_OF_THE_SERVER = {
    "PartiQLInsert": "BatchExecuteStatement",
    "ImportTable": "ImportTable",
    "DescribeImport": "DescribeImport",
    **{name: name for name in ("DescribeStream", "GetRecords", "GetShardIterator")},
}
"""What the embedded server asks for beside the rights that AWS asks for, or on any resource."""
_ON_ALL = ("dynamodb:ListTagsOfResource", "sts:*")
"""What it does not know to be of one table."""

NOT_ASKED = frozenset(
    {
        *("DescribeContinuousBackups", "UpdateContinuousBackups", "DescribeContributorInsights"),
        *("UpdateContributorInsights", "ListTagsOfResource", "TagResource"),
    }
)
"""Rights on the table that the embedded server grants to everybody, and AWS does not."""
_NOT_ASKED_BESIDE = frozenset({"Bucket", "Logs"})
"""Statements that it does not ask for: without ListBucket AWS answers 403 of an object that is not there, this server 404;
the log of an import is written by AWS with the rights of who asks for it, here without; who reads it is tried by itself."""
_SELDOM = {"import": frozenset({"ListImports", "UpdateTable"})}
"""Rights of a role for an answer that was lost, and for options that the job does not ask for."""
_CHANGES_THE_TABLE = {
    "TagResource",
    "UpdateContinuousBackups",
    "UpdateContributorInsights",
    "UpdateTimeToLive",
}
_NOT_TRIED: Mapping[str, frozenset[str]] = {
    "deploy": frozenset({"UpdateTable", *_CHANGES_THE_TABLE}),
    "import": frozenset({"DescribeImport", "ImportTable", "ListImports", "UpdateTable", *_CHANGES_THE_TABLE}),
    "service-after": frozenset({"ConditionCheckItem"}),
}
"""What the doctor cannot try on the table: it would leave something behind."""
_OF_THE_TABLE = ("DescribeTable", "DescribeTimeToLive")
"""Rights by which the table is looked at, before the doctor tries anything."""
_REFUSED = re.compile(r"(?:may not|may not do this; allow|not authorized to perform:) ([\w-]+:\w+)")


def asked_by_the_server(role: str, right: Right) -> bool:
    """Whether the embedded server asks for it when the role's commands run."""
    if right.statement in _NOT_ASKED_BESIDE:
        return False
    return right.name not in NOT_ASKED | _SELDOM.get(role, frozenset())


def refused_alone(failed: str, without: Right) -> bool:
    """Whether a run failed because of that right and of no other."""
    called = {without.action, f"dynamodb:{_OF_THE_SERVER.get(without.name, without.name)}"}
    refused = set(_REFUSED.findall(failed))
    return bool(refused) and refused <= called


@dataclass
class Acting:
    """A project whose commands run as a user of its own."""

    made: Project
    iam: Any
    user: str
    _policies: dict[str, dict[str, Any]] = field(default_factory=dict)

    def policy(self, role: str) -> dict[str, Any]:
        if role not in self._policies:
            at = ("--region", "us-east-1", "--from", f"s3://{ITEMS}/{self.user}")
            text = self.made.done("export", "--as", "iam", str(self.made.job), "--role", role, *at).out
            self._policies[role] = json.loads(text)
        document: dict[str, Any] = json.loads(json.dumps(self._policies[role]))
        return document

    def rights(self, role: str) -> list[Right]:
        """Every right of the role's policy."""
        return sorted(
            Right(_about(statement["Sid"], role), action)
            for statement in self.policy(role)["Statement"]
            for action in statement["Action"]
        )

    def may(self, role: str, *, but: Right | None = None, policy: str = "role") -> None:
        """From now on the user has this role's rights, without one of them, by the policy of that name."""
        document = self.policy(role)
        for statement in document["Statement"]:
            about = _about(statement["Sid"], role)
            statement["Action"] = [right for right in statement["Action"] if Right(about, right) != but]
        left = [statement for statement in document["Statement"] if statement["Action"]]
        named = {right.partition(":")[2] for statement in left for right in statement["Action"]}
        also = [f"dynamodb:{_OF_THE_SERVER[name]}" for name in sorted(named) if name in _OF_THE_SERVER]
        document["Statement"] = [*left, {"Effect": "Allow", "Action": [*also, *_ON_ALL], "Resource": "*"}]
        self.iam.put_user_policy(UserName=self.user, PolicyName=policy, PolicyDocument=json.dumps(document))

    def told(self, role: str) -> dict[str, str]:
        """What the doctor says of the rights that it misses, by check; a warning for what it did not try."""
        ended = self.made.run("doctor", str(self.made.job), "--role", role, "--write", "--json")
        checks = [
            one for one in ended.data["checks"] if one["name"].startswith(("permission", "table", "bucket"))
        ]
        return {one["name"]: f"{one['state']}: {one['what']}" for one in checks if one["state"] != "ok"}

    def check_doctor(self, role: str, without: Right | None) -> None:
        """The doctor names the right that is missing, and no other; of what it cannot try it says so."""
        told = self.told(role)
        untried = {name for name, what in told.items() if what.startswith("warning: not tried")}
        if "table" not in told:  # without it, nothing else is tried
            assert untried >= {f"permission {right}" for right in _NOT_TRIED.get(role, ())}
            assert untried >= {_check(right) for right in self.rights(role) if not _is_tried(right)}
        failed = {name: what for name, what in told.items() if what.startswith("failed")}
        if without is None or _check(without) in untried:
            assert failed == {}
        else:
            named = "table" if without.name in _OF_THE_TABLE else _check(without)
            assert [*failed] == [named], failed
            assert refused_alone(failed[named], without), failed

    def run(self, script: Sequence[str]) -> str:
        """What the first command said that failed, or was told that it may not do something; '' where all went well."""
        with ExitStack() as stack:
            for line in script:
                if line in HOOKS:
                    stack.enter_context(HOOKS[line](self))
                    continue
                words = line.replace("JOB", str(self.made.job)).replace("PLACE", f"s3://{ITEMS}/{self.user}")
                ended = self.made.run(*words.split())
                if ended.code not in (0, 1) or _REFUSED.search(ended.out + ended.err):
                    return f"{line}: {ended.code}: {ended.out}{ended.err}"
        return ""

    def client(self, service: str) -> Any:
        """A client of boto3's that acts as the user."""
        return boto3.client(
            service,
            endpoint_url=self.made.endpoint,
            region_name="us-east-1",
            aws_access_key_id=self.made.environment["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self.made.environment["AWS_SECRET_ACCESS_KEY"],
        )

    @contextmanager
    def as_root(self) -> Iterator[None]:
        """Until it ends, commands may do everything."""
        own = dict(self.made.environment)
        self.made.environment.update({"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"})
        try:
            yield
        finally:
            self.made.environment.update(own)


def _about(sid: str, role: str) -> str:
    """What a statement is about, by its name."""
    found = re.fullmatch(rf"Migrator(\w+?){role.title().replace('-', '')}[0-9a-f]{{12}}", sid)
    assert found is not None, sid
    return found[1]


def _is_tried(right: Right) -> bool:
    """Whether the doctor tries a right beside those on the table."""
    return right.statement in ("Table", "Indexes", "Imports", "Bucket") or right == Right(
        "Objects", "s3:GetObject"
    )


def _check(right: Right) -> str:
    """The name of the doctor's check."""
    if right.statement in ("Table", "Imports"):
        return f"permission {right.name}"
    if right.statement == "Indexes":
        return f"permission {right.name} ByTotal"
    return f"permission {right.action}{' of exported items' * right.statement.startswith('Items')}"


# ── What others do between the commands ──


def complete(one: Acting) -> AbstractContextManager[None]:
    """The table is the truth of every pattern."""
    with desk_of(one.made) as session:
        for name in PATTERNS:
            known = session.phases.all().get(name, PatternPhase(name))
            session.phases.move(Move(name, known.state, State("complete"), "a test"), known.version)
    return nullcontext()


def filled(one: Acting) -> AbstractContextManager[None]:
    with one.as_root():
        one.made.done("backfill", str(one.made.job), "--restart")
    return nullcontext()


def epoch_raised(one: Acting) -> AbstractContextManager[None]:
    """The first step of `recover JOB source-restored`, after which a repair is due."""
    with pytest.MonkeyPatch.context() as environment, desk_of(one.made) as session:
        for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            environment.setenv(variable, "test")
        raise_epoch(session, 0)
    return nullcontext()


@contextmanager
def relay_of_root(one: Acting) -> Iterator[None]:
    """A relay beside a backfill, which so writes by condition."""
    job = str(one.made.job)
    with ExitStack() as stack:
        with one.as_root():
            stack.enter_context(one.made.beside("relay", job))
        while "no relay is running" in one.made.done("status", job).out:
            time.sleep(0.1)
        yield


_INDEXES = "indexes: {"
_GROWN = f"{_INDEXES}More: {{key: [MorePK]}}, "


def grown(one: Acting) -> AbstractContextManager[None]:
    """The mapping has an index more."""
    mapping = one.made.folder / "mapping.yaml"
    mapping.write_text(mapping.read_text().replace(_INDEXES, _GROWN))
    assert _GROWN in mapping.read_text()
    return nullcontext()


def shrunk(one: Acting) -> AbstractContextManager[None]:
    mapping = one.made.folder / "mapping.yaml"
    mapping.write_text(mapping.read_text().replace(_GROWN, _INDEXES))
    return nullcontext()


def direct(one: Acting) -> AbstractContextManager[None]:
    """Invoices are the service's to write from now on."""
    complete(one)
    made = one.made
    client = boto3.client("dynamodb", endpoint_url=made.endpoint, **ROOT)
    table_id = client.describe_table(TableName=made.table)["Table"]["TableId"]
    with journal_of(made) as journal:
        job = job_settings.load_job(made.job, made.environment).name
        keep_direct(journal, job, table_id, "a test", ["invoice"])
    made.job.write_text(made.job.read_text() + "writes: {direct: [invoice]}\n")
    return nullcontext()


def streaming(one: Acting) -> None:
    text = one.made.job.read_text()
    one.made.job.write_text(text.replace("target: {", "target: {options: {stream: new_and_old_images}, ", 1))


HOOKS: Mapping[str, Callable[[Acting], AbstractContextManager[None]]] = {
    "COMPLETE": complete,
    "DIRECT": direct,
    "EPOCH": epoch_raised,
    "FILL": filled,
    "GROW": grown,
    "SHRINK": shrunk,
    "RELAY": relay_of_root,
}

CHANGES = """
UPDATE customer SET name = 'Zoë' WHERE id = 1;
DELETE FROM invoice WHERE id = 2;
INSERT INTO customer (id, name) VALUES (9001, 'Ann');
"""


@contextmanager
def acting(folder: Path, endpoint: str) -> Iterator[Acting]:
    """A shop of its own, and a user who may do nothing yet."""
    iam = boto3.client("iam", endpoint_url=endpoint, **ROOT)
    s3 = boto3.client("s3", endpoint_url=endpoint, **ROOT)
    for bucket in (OBJECTS, ITEMS):
        s3.create_bucket(Bucket=bucket)
    user = f"u{secrets.token_hex(6)}"
    iam.create_user(UserName=user)
    key = iam.create_access_key(UserName=user)["AccessKey"]
    made = cutover_shop(folder, endpoint)
    (folder / "mapping.yaml").write_text(SHOP)
    bucket_of_job = f"bucket: {OBJECTS}, prefix: {user}/, endpoint:"
    made.job.write_text(made.job.read_text().replace("endpoint:", bucket_of_job))
    made.environment.update({
        "AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
    })  # fmt: skip
    yield Acting(made, iam, user)


def prepared(one: Acting, before: Sequence[str]) -> None:
    """What others have done before the role comes: commands without their job; then rows change."""
    with one.as_root():
        for line in before:
            if line == "SPOIL":
                spoil(one.made)
            elif line == "STREAM":
                streaming(one)
            elif line == "LEFT":
                one.made.done("-q", "table", "export", str(one.made.job), "--to", f"s3://{ITEMS}/{one.user}")
            else:
                one.made.done(*line.split(), str(one.made.job))
    if before:
        with sqlite3.connect(one.made.folder / "shop.db") as source:
            source.executescript(CHANGES)


def spoil(made: Project) -> None:
    """An item says something else than its row, and a verify has found it."""
    boto3.client("dynamodb", endpoint_url=made.endpoint, **ROOT).update_item(
        TableName=made.table,
        Key={"PK": {"S": "C#5"}, "SK": {"S": "META"}},
        UpdateExpression="SET #n = :n",
        ExpressionAttributeNames={"#n": "name"},
        ExpressionAttributeValues={":n": {"S": "another"}},
    )
    assert made.run("verify", str(made.job), "--settle", "0").code == 1
