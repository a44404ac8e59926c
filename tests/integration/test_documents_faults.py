"""Old tables behind a service that throttles, leaves keys unread or fails: what is read is whole, or it is said why not."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from migrator.mapping.model.table import encode_key
from migrator.runtime.errors import MissingNameError, StoppedError
from migrator.source.dynamodb.source import DocumentSource
from tests import pins
from tests.support_documents import OldTables, declared, key_types, old_tables, plan_declared
from tests.support_source import PAIR, plan_of

PLAN = plan_declared(plan_of(PAIR))
ROWS = [{"a": f"k{number}", "b": number, "n": number} for number in range(120)]
KEYS = [encode_key([row["a"], row["b"]]) for row in ROWS]


class Between:
    """A client whose first answers of an operation are spoiled."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.spoiled: dict[str, int] = {}
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._client, name)
        if name not in ("scan", "batch_get_item", "query"):
            return real

        def call(**words: Any) -> Any:
            self.asked.append(name)
            if self.spoiled.get(name, 0):
                self.spoiled[name] -= 1
                if name == "batch_get_item":
                    return {"Responses": {}, "UnprocessedKeys": words["RequestItems"]}
                error = {"Error": {"Code": "ProvisionedThroughputExceededException", "Message": "k1 is hot"}}
                raise ClientError(error, name)
            return real(**words)

        return call


@pytest.fixture
def tables(dynamodb_url: str) -> Iterator[OldTables]:
    with old_tables(dynamodb_url) as made:
        yield made


def _source(tables: OldTables) -> tuple[DocumentSource, Between, str]:
    name = f"{secrets.token_hex(3)}-pair"
    tables.make(name, key_types(PAIR), ROWS)
    source = tables.source([declared(PAIR)], {"pair": name})
    between = Between(source.finder.reader.client)
    source.finder.reader.client = between
    return source, between, name


def test_throttled_scans_and_unread_keys_are_retried(tables: OldTables) -> None:
    source, between, _ = _source(tables)
    between.spoiled = {"scan": 2, "batch_get_item": 2}
    assert len(source.read_page(PLAN, None, None)) == len(ROWS)
    assert len(source.read_rows(PLAN, KEYS)) == len(ROWS)
    assert between.asked.count("batch_get_item") == 2 + 2  # 100 keys a request


def test_table_throttled_to_the_last_try_is_reported(tables: OldTables) -> None:
    source, between, name = _source(tables)
    between.spoiled = {"scan": 99}
    with pins.refused(StoppedError, name=name) as raised:
        source.read_page(PLAN, None, None)
    assert "hot" not in str(raised.value)


def test_a_table_that_is_deleted_on_the_way_is_missed(tables: OldTables) -> None:
    source, _, name = _source(tables)
    assert source.facts()
    tables.drop(name)
    for ask in (
        lambda: source.read_page(PLAN, None, None),
        source.facts,
        lambda: source.read_rows(PLAN, KEYS[:1]),
    ):
        with pins.refused(MissingNameError):
            ask()


def test_reads_keep_to_their_units(tables: OldTables) -> None:
    source, _, _ = _source(tables)
    took: list[float] = []
    source.finder.reader.units.took = took.append  # type: ignore[method-assign,assignment]
    source.read_page(PLAN, None, None)
    source.read_rows(PLAN, KEYS[:3])
    assert len(took) >= 2
    assert sum(took) >= 1
