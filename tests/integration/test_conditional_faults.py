"""Conditional writes through the fault proxy: every outcome says what the table holds."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from botocore.exceptions import ClientError, CredentialRetrievalError

from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.conditional import ConditionalWrites
from migrator.dynamodb.control import DynamoStripping
from migrator.dynamodb.exchange import BotocoreSigning, KeptSigning
from migrator.dynamodb.store import DynamoStore
from migrator.dynamodb.throttle import WriteLimit
from migrator.mapping.model.live import Outcome
from migrator.mapping.model.table import TOMBSTONE, Item, KeyAttribute, TableDesign
from migrator.runtime.errors import ItemRefusedError, StoppedError, TargetError
from migrator.runtime.retry import Backoff
from migrator.runtime.values import replace
from tests import pins
from tests.faults.proxy import FaultProxy
from tests.faults.schedule import Faults
from tests.support_fence import no_fence
from tests.support_items import write_groups, write_items, write_texts
from tests.support_lanes import every_lane  # noqa: F401

QUICK = Backoff(attempts=6, base_s=0.001, cap_s=0.01, limit_s=120)
PATIENT = Backoff(attempts=60, base_s=0.001, cap_s=0.02, limit_s=60)


@contextmanager
def through(
    url: str, design: TableDesign, faults: Faults, backoff: Backoff = PATIENT, limit: WriteLimit | None = None
) -> Iterator[ConditionalWrites]:
    with FaultProxy(url, faults) as proxy:
        client = dynamodb_client(region=None, profile=None, endpoint=proxy.url)
        yield ConditionalWrites(DynamoStore(client, design, no_fence, backoff, limit=limit))


def items(count: int, ticket: int, source: str = "order") -> list[Item]:
    return [
        {"PK": f"P#{n % 7}", "SK": f"{n:05}", "type": "T", "_src": f"{source}:[{n}]", "_tk": ticket}
        for n in range(count)
    ]


def stored(url: str, design: TableDesign) -> list[Item]:
    store = DynamoStore(dynamodb_client(region=None, profile=None, endpoint=url), design, no_fence)
    return sorted((one for page in store.scan(0, 1) for one in page.items), key=lambda one: str(one["SK"]))


WAYS = pytest.mark.parametrize("way", ["put", "insert", "texts"])
INSERTS = pytest.mark.parametrize("way", ["insert", "texts"])


def written(writes: ConditionalWrites, wanted: list[Item], way: str) -> list[Outcome]:
    if way == "texts":
        return write_texts(writes, wanted)
    return write_items(writes, wanted, fresh=way != "put")


def verdicts(writes: ConditionalWrites, wanted: list[Item], way: str) -> set[str]:
    return {one.verdict for one in written(writes, wanted, way)}


@WAYS
@pytest.mark.parametrize(
    "kind", ["throttle", "slow_down", "errors", "unavailable", "cut_before", "cut_after"]
)
def test_each_fault_by_itself_changes_no_outcome(
    dynamodb_url: str, design: TableDesign, kind: str, way: str
) -> None:
    faults = Faults(**{kind: 0.4}, seed=3)  # type: ignore[arg-type]
    with through(dynamodb_url, design, faults) as writes:
        assert verdicts(writes, items(12, 5), way) == {"stored"}
        assert verdicts(writes, items(12, 4), way) == {"newer"}
        assert verdicts(writes, items(12, 6, "other"), way) == {"owned_by_other"}
        dead: list[Item] = [{**one, "type": TOMBSTONE} for one in items(12, 7)]
        assert verdicts(writes, dead, way) == {"stored"}
        assert verdicts(writes, items(12, 6, "other"), way) == {"tombstoned_by_other"}
        assert stored(dynamodb_url, design) == dead
        assert writes.remove_tombstones(dead) == 12
    assert stored(dynamodb_url, design) == []
    assert faults.counts[kind] > 0


def test_what_a_lost_answer_removed_is_counted_as_removed(dynamodb_url: str, design: TableDesign) -> None:
    faults = Faults(cut_after=0.4, seed=3)
    with through(dynamodb_url, design, faults) as writes, DynamoStripping(writes.store) as stripping:
        ours = items(12, 5)
        assert verdicts(writes, ours, "put") == {"stored"}
        assert stripping.strip(ours[:6]) == 6
        assert writes.store.delete_own(ours[6:]) == 6
    assert stored(dynamodb_url, design) == [
        {name: one[name] for name in ("PK", "SK", "type")} for one in ours[:6]
    ]
    assert faults.counts["cut_after"] > 0


@WAYS
@pytest.mark.parametrize("faults", [Faults(expires_after=2), Faults(clock_s=-734)], ids=["expired", "clock"])
def test_expired_credentials_and_wrong_clock_stop_resumable_run(
    dynamodb_url: str, design: TableDesign, faults: Faults, way: str
) -> None:
    faults = replace(faults, counts=Counter())
    with through(dynamodb_url, design, faults) as writes:
        with pins.refused(StoppedError):
            written(writes, items(200, 5), way)
        faults.renew()
        faults.clock_s = 0.0
        assert verdicts(writes, items(200, 6), way) == {"stored"}
    assert stored(dynamodb_url, design) == items(200, 6)


@WAYS
@pytest.mark.parametrize(
    "error",
    [
        CredentialRetrievalError(provider="custom-process", error_msg="Planted"),
        ClientError({"Error": {"Code": "ExpiredTokenException"}}, "AssumeRole"),
    ],
    ids=["process", "role"],
)
def test_credentials_that_cannot_be_renewed_stop_resumable_run(
    dynamodb_url: str, design: TableDesign, monkeypatch: pytest.MonkeyPatch, error: Exception, way: str
) -> None:
    def signed(*_: object) -> None:
        raise error

    with through(dynamodb_url, design, Faults()) as writes:
        with monkeypatch.context() as patch, pins.refused(StoppedError) as told:
            for signing in (KeptSigning, BotocoreSigning):
                patch.setattr(signing, "signed", signed)
            written(writes, items(200, 5), way)
        assert "Planted" not in str(told.value)
        assert verdicts(writes, items(200, 6), way) == {"stored"}


@INSERTS
def test_fresh_items_go_by_25_and_only_failed_ones_are_resent(
    dynamodb_url: str, design: TableDesign, way: str
) -> None:
    faults = Faults(unprocessed=0.3, seed=2)
    with through(dynamodb_url, design, faults) as writes:
        assert verdicts(writes, items(100, 5), way) == {"stored"}
    assert stored(dynamodb_url, design) == items(100, 5)
    assert faults.counts["requests PutItem"] == 0
    assert faults.counts["unprocessed"] > 0
    plain = Faults()
    with through(dynamodb_url, design, plain) as writes:
        assert verdicts(writes, items(130, 5), way) == {"stored"}
    assert plain.counts["requests BatchExecuteStatement"] == 6
    assert plain.counts["requests PutItem"] == 100


def test_writes_that_have_not_begun_when_one_fails_are_left_out(
    dynamodb_url: str, design: TableDesign
) -> None:
    asked = itertools.count(1)

    def check() -> None:
        if next(asked) > 12:
            raise StoppedError("another writer has taken over")

    client = dynamodb_client(region=None, profile=None, endpoint=dynamodb_url, connections=10)
    with pins.refused(StoppedError):
        write_items(ConditionalWrites(DynamoStore(client, design, check, QUICK)), items(200, 5))
    # Each connection asks once more at most.
    assert next(asked) - 1 <= 12 + 10


@INSERTS
@pytest.mark.parametrize("code", ["ValidationError", "AccessDenied", "ConditionalCheckFailed", "ANewOne"])
def test_a_statement_that_fails_for_good_is_put(
    dynamodb_url: str, design: TableDesign, code: str, way: str
) -> None:
    faults = Faults(unprocessed=0.5, statement_code=code)
    with through(dynamodb_url, design, faults) as writes:
        assert verdicts(writes, items(50, 5), way) == {"stored"}
    assert stored(dynamodb_url, design) == items(50, 5)
    assert faults.counts["requests PutItem"] == faults.counts["unprocessed"] > 0


@WAYS
def test_a_writer_that_is_cut_off_does_not_go_past_a_newer_one(
    dynamodb_url: str, design: TableDesign, way: str
) -> None:
    """The older writer's requests take effect unseen and are sent again while the newer one writes."""
    with (
        through(dynamodb_url, design, Faults(cut_after=0.5, seed=1)) as older,
        through(dynamodb_url, design, Faults(cut_before=0.2, cut_after=0.2, seed=2)) as newer,
        ThreadPoolExecutor(2) as executor,
    ):
        one = executor.submit(written, older, items(60, 5), way)
        other = executor.submit(written, newer, items(60, 6), way)
        assert {outcome.verdict for outcome in one.result()} <= {"stored", "newer"}
        assert {outcome.verdict for outcome in other.result()} == {"stored"}
    assert stored(dynamodb_url, design) == items(60, 6)


@WAYS
def test_a_table_that_takes_nothing_stops(dynamodb_url: str, design: TableDesign, way: str) -> None:
    faults = Faults(throttle=1.0)
    with through(dynamodb_url, design, faults, QUICK) as writes, pins.refused(StoppedError):
        written(writes, items(200, 5), way)
    # What had not begun when the first one gave up does not begin.
    assert faults.counts["requests PutItem"] < 600


@INSERTS
def test_inserts_that_are_all_throttled_stop_with_what_was_sent(
    dynamodb_url: str, design: TableDesign, way: str
) -> None:
    faults = Faults(unprocessed=1.0)
    once = Backoff(attempts=1, base_s=0.001, cap_s=0.01, limit_s=120)
    with through(dynamodb_url, design, faults, once) as writes, pytest.raises(StoppedError):
        written(writes, items(2000, 5), way)
    # Of 80 requests, those that are sent before the first answer, and those of threads that have begun.
    assert faults.counts["requests BatchExecuteStatement"] < 40


@WAYS
def test_missing_table_is_reported_at_once(dynamodb_url: str, way: str) -> None:
    nowhere = TableDesign("NoSuchTable", (KeyAttribute("PK"), KeyAttribute("SK")), "type")
    with through(dynamodb_url, nowhere, Faults(), QUICK) as writes, pins.refused(TargetError):
        written(writes, items(3, 5), way)


@WAYS
def test_the_limit_of_write_units_holds(dynamodb_url: str, design: TableDesign, way: str) -> None:
    slept: list[float] = []
    now = [0.0]

    def wait(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    limit: Any = WriteLimit(20, wait=wait, clock=lambda: now[0])
    with through(dynamodb_url, design, Faults(), limit=limit) as writes:
        assert verdicts(writes, items(60, 5), way) == {"stored"}
    assert now[0] > 1
    assert stored(dynamodb_url, design) == items(60, 5)


# ── transactions ──


def groups(count: int, ticket: int, source: str = "order") -> list[list[Item]]:
    wanted = items(5 * count, ticket, source)
    return [[{**one, "_src": f"{source}:[{n}]"} for one in wanted[5 * n : 5 * n + 5]] for n in range(count)]


def flat(grouped: list[list[Item]]) -> list[Item]:
    return [item for group in grouped for item in group]


@pytest.mark.parametrize(
    "kind", ["cancel", "throttle", "slow_down", "errors", "unavailable", "cut_before", "cut_after"]
)
def test_each_fault_alone_changes_no_outcome_of_a_group(
    dynamodb_url: str, design: TableDesign, kind: str
) -> None:
    faults = Faults(**{kind: 0.4}, seed=3)  # type: ignore[arg-type]
    with through(dynamodb_url, design, faults) as writes:
        for ticket, source, verdict in (
            (5, "order", "stored"),
            (4, "order", "newer"),
            (6, "other", "owned_by_other"),
        ):
            outcomes = write_groups(writes, groups(12, ticket, source))
            assert {one.verdict for one in outcomes} == {verdict}
    assert stored(dynamodb_url, design) == flat(groups(12, 5))
    assert faults.counts[kind] > 0


def _noting(tokens: list[str]) -> Callable[[str, dict[str, Any]], bool]:
    """Notes the token of every transaction, and holds none back."""

    def holds(operation: str, body: dict[str, Any]) -> bool:
        tokens.extend([body["ClientRequestToken"]] if operation == "TransactWriteItems" else [])
        return False

    return holds


@pytest.mark.parametrize("code", ["ThrottlingError", "ProvisionedThroughputExceeded", "TransactionConflict"])
def test_transaction_cancelled_for_a_passing_reason_is_resent(
    dynamodb_url: str, design: TableDesign, code: str
) -> None:
    tokens: list[str] = []
    faults = Faults(cancel=0.5, cancel_code=code, seed=5, holds=_noting(tokens))
    with through(dynamodb_url, design, faults) as writes:
        assert {one.verdict for one in write_groups(writes, groups(10, 5))} == {"stored"}
    assert faults.counts["cancel"] > 0
    # What was answered is over: whether its token still stands for the old answer must not matter.
    assert len(set(tokens)) == len(tokens) == 10 + faults.counts["cancel"]
    assert stored(dynamodb_url, design) == flat(groups(10, 5))


@pytest.mark.parametrize("code", ["ValidationError", "ItemCollectionSizeLimitExceeded", "ANewOne"])
def test_transaction_refused_for_good_is_reported_at_once(
    dynamodb_url: str, design: TableDesign, code: str
) -> None:
    faults = Faults(cancel=1.0, cancel_code=code)
    with through(dynamodb_url, design, faults, QUICK) as writes, pytest.raises(ItemRefusedError, match=code):
        write_groups(writes, groups(1, 5))
    assert faults.counts["requests TransactWriteItems"] == 1


def test_a_table_that_cancels_every_transaction_stops(dynamodb_url: str, design: TableDesign) -> None:
    with through(dynamodb_url, design, Faults(cancel=1.0), QUICK) as writes, pins.refused(StoppedError):
        write_groups(writes, groups(2, 5))
    assert stored(dynamodb_url, design) == []


def test_group_that_dynamodb_refuses_does_not_fail_the_table(dynamodb_url: str, design: TableDesign) -> None:
    group = groups(1, 5)[0]
    with through(dynamodb_url, design, Faults(), QUICK) as writes:
        with pytest.raises(ItemRefusedError, match="ValidationException"):
            write_groups(writes, [[*group, group[0]]])
        with pytest.raises(ItemRefusedError):
            write_groups(writes, [[{**group[0], "PK": 5}, group[1]]])


def test_resent_transaction_keeps_one_token_and_applies_once(dynamodb_url: str, design: TableDesign) -> None:
    """It took effect unseen; before it is sent again, something newer replaces a part of it."""
    tokens: list[str] = []
    with through(dynamodb_url, design, Faults()) as newer:

        def holds(operation: str, body: dict[str, Any]) -> bool:
            if operation != "TransactWriteItems":
                return False
            tokens.append(body["ClientRequestToken"])
            if len(tokens) == 2:
                write_items(newer, [{**groups(1, 6)[0][0]}])
            return False

        with through(dynamodb_url, design, Faults(cut_after=0.9, seed=4, holds=holds)) as older:
            assert {one.verdict for one in write_groups(older, groups(1, 5))} <= {
                "stored",
                "rolled_back",
                "newer",
            }
    assert len(tokens) > 1
    assert len(set(tokens)) == 1
    assert [one["_tk"] for one in stored(dynamodb_url, design)] == [6, 5, 5, 5, 5]


def test_the_limit_of_write_units_counts_a_transaction_twice(dynamodb_url: str, design: TableDesign) -> None:
    now = [0.0]

    def wait(seconds: float) -> None:
        now[0] += seconds

    limit: Any = WriteLimit(20, wait=wait, clock=lambda: now[0])
    with through(dynamodb_url, design, Faults(), limit=limit) as writes:
        assert {one.verdict for one in write_groups(writes, groups(12, 5))} == {"stored"}
    assert now[0] > 3


def test_each_of_many_resent_transactions_is_the_same_request(dynamodb_url: str, design: TableDesign) -> None:
    bodies: list[str] = []

    def holds(operation: str, body: dict[str, Any]) -> bool:
        bodies.extend([json.dumps(body)] if operation == "TransactWriteItems" else [])
        return False

    with through(dynamodb_url, design, Faults(cut_after=0.4, seed=4, holds=holds)) as writes:
        assert {one.verdict for one in write_groups(writes, groups(6, 5))} == {"stored"}
    assert len(set(bodies)) == 6 < len(bodies)
    assert stored(dynamodb_url, design) == flat(groups(6, 5))
