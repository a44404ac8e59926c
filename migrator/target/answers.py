"""Checks that an answer of AWS is whole: where a part is missing it counts as none, and is asked for again.

A proxy, a gateway or a broken endpoint can say 200 with nothing in it. Read as an answer it would say that all is
written, or that nothing is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from botocore.exceptions import HTTPClientError
from botocore.parsers import ResponseParserError, ResponseParserFactory

Asked: TypeAlias = Mapping[str, Any]
"""A request's parameters as they were given to the client."""
Answer: TypeAlias = Mapping[str, Any]
_Missing: TypeAlias = Iterator[str]
"""Names of what an answer lacks."""

_ASKED = "migrator_asked"
_UNREADABLE = (ResponseParserError, AttributeError, LookupError, TypeError, ValueError)
"""What botocore's parsers raise over an answer of another shape."""


class IncompleteAnswerError(HTTPClientError):  # type: ignore[misc]
    """An answer that lacks a part that was asked for: the request may have taken effect, or may yet."""

    fmt = "an answer without {part}"


class WholeAnswers(ResponseParserFactory):  # type: ignore[misc]
    """botocore's parsers, whose every failure is an answer that is not whole."""

    def create_parser(self, protocol_name: str) -> Any:
        return _Parser(super().create_parser(protocol_name))


class _Parser:
    def __init__(self, parser: Any) -> None:
        self._parser = parser

    def parse(self, response: Any, shape: Any) -> Any:
        try:
            parsed = self._parser.parse(response, shape)
        except _UNREADABLE:
            parsed = None
        if not isinstance(parsed, dict):
            raise IncompleteAnswerError(part="the operation's shape")
        return parsed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)


def require_whole_answers(client: Any) -> None:
    """Lets every call of the client raise IncompleteAnswerError where a part of what it asked for is missing."""
    service = client.meta.service_model.service_id.hyphenize()
    client.meta.events.register(f"before-parameter-build.{service}", _keep)
    client.meta.events.register(f"after-call.{service}", _require)


def _keep(params: Asked, context: dict[str, Any], **_: Any) -> None:
    context[_ASKED] = params


def _require(http_response: Any, parsed: Answer, model: Any, context: Mapping[str, Any], **_: Any) -> None:
    asked = context.get(_ASKED, {})
    if http_response.status_code < 300:
        missing = list(missing_parts(model.name, asked, parsed))
    else:
        missing = list(missing_reasons(asked, parsed))
    if missing:
        raise IncompleteAnswerError(part=missing[0])


def missing_parts(operation: str, asked: Asked, answer: Answer) -> _Missing:
    """What the answer of a request that took effect lacks.

    Source: API references of DynamoDB and S3, "Response Elements"; fields that AWS leaves out where they are empty (Item,
    LastEvaluatedKey) are not among them.
    """
    yield from _PARTS.get(operation, _nothing)(asked, answer)


def missing_reasons(asked: Asked, answer: Answer) -> _Missing:
    """What a refusal lacks without which nobody can say what was in the way.

    Source: API reference, PutItem, "ReturnValuesOnConditionCheckFailure"; TransactWriteItems,
    "TransactionCanceledException".
    """
    code = str(answer.get("Error", {}).get("Code", ""))
    if code == "ConditionalCheckFailedException" and _wants_old(asked) and not answer.get("Item"):
        yield "Item"
    if code != "TransactionCanceledException":
        return
    actions, reasons = asked.get("TransactItems", []), answer.get("CancellationReasons") or []
    if not _is_list(reasons, len(actions)) or not all(reason.get("Code") for reason in reasons):
        yield "CancellationReasons"
        return
    for action, reason in zip(actions, reasons, strict=True):
        (words,) = action.values()
        if reason["Code"] == "ConditionalCheckFailed" and _wants_old(words) and not reason.get("Item"):
            yield "Item of a CancellationReason"


def _wants_old(words: Asked) -> bool:
    return words.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"


# ── by operation ──


def _nothing(asked: Asked, answer: Answer) -> _Missing:
    return iter(())


def _capacity(asked: Asked, answer: Answer) -> _Missing:
    """Told by every operation that is asked for it: what says that a write took place, where it says nothing else."""
    told = answer.get("ConsumedCapacity")
    parts = [told] if isinstance(told, Mapping) else told or []
    if asked.get("ReturnConsumedCapacity", "NONE") != "NONE" and not any(
        isinstance(one.get("CapacityUnits"), (int, float)) for one in parts
    ):
        yield "ConsumedCapacity"


def _batch_written(asked: Asked, answer: Answer) -> _Missing:
    sent, left = asked["RequestItems"], answer.get("UnprocessedItems")
    if left is None or not all(_is_part(left[table], sent.get(table, [])) for table in left):
        yield "UnprocessedItems"
    elif sum(map(len, left.values())) < sum(map(len, sent.values())):
        yield from _capacity(asked, answer)


def _batch_read(asked: Asked, answer: Answer) -> _Missing:
    """Its ConsumedCapacity is not required: there are endpoints that do not tell it of this operation."""
    sent, read, left = asked["RequestItems"], answer.get("Responses"), answer.get("UnprocessedKeys")
    if left is None or not left.keys() <= sent.keys():
        yield "UnprocessedKeys"
        return
    done = {
        table: len(words["Keys"]) - len(left.get(table, {}).get("Keys", [])) for table, words in sent.items()
    }
    untold = read is None or any(count and table not in read for table, count in done.items())
    if untold or any(len(items) > done.get(table, 0) for table, items in (read or {}).items()):
        yield "Responses"


def _statements_run(asked: Asked, answer: Answer) -> _Missing:
    responses = answer.get("Responses")
    if not _is_list(responses, len(asked["Statements"])):
        yield "Responses"
    elif not all(one.get("Error") for one in responses or []):
        yield from _capacity(asked, answer)


def _page(asked: Asked, answer: Answer) -> _Missing:
    items = answer.get("Items")
    if not isinstance(items, list):
        yield "Items"
    elif answer.get("Count") != len(items):
        yield "Count"
    yield from _capacity(asked, answer)


def _named(name: str, *parts: str) -> Callable[[Asked, Answer], _Missing]:
    """The description of something, and what it must say of it."""

    def missing(asked: Asked, answer: Answer) -> _Missing:
        found = answer.get(name) or {}
        yield from (f"{name}.{part}" for part in parts if found.get(part) is None)

    return missing


def _told(*parts: str) -> Callable[[Asked, Answer], _Missing]:
    return lambda asked, answer: (part for part in parts if answer.get(part) is None)


_PARTS: Mapping[str, Callable[[Asked, Answer], _Missing]] = {
    "PutItem": _capacity,
    "DeleteItem": _capacity,
    "UpdateItem": _capacity,
    "GetItem": _capacity,
    "TransactWriteItems": _capacity,
    "BatchWriteItem": _batch_written,
    "BatchGetItem": _batch_read,
    "BatchExecuteStatement": _statements_run,
    "Query": _page,
    "Scan": _page,
    "DescribeTable": _named("Table", "TableName", "TableStatus"),
    "CreateTable": _named("TableDescription", "TableName"),
    "DescribeTimeToLive": _named("TimeToLiveDescription", "TimeToLiveStatus"),
    "UpdateTimeToLive": _named("TimeToLiveSpecification", "Enabled"),
    "PutObject": _told("ETag"),
    "HeadObject": _told("ETag", "ContentLength"),
}


def _is_list(found: Any, length: int) -> bool:
    return isinstance(found, list) and len(found) == length and all(isinstance(one, Mapping) for one in found)


def _is_part(left: Sequence[Any], sent: Sequence[Any]) -> bool:
    return 0 < len(left) <= len(sent)
