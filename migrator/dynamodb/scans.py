"""The answers to a scan's requests, whole or read item by item."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import orjson

from migrator.mapping.items.wire import decode_item
from migrator.mapping.model.edges import WiredItem
from migrator.mapping.model.table import ItemKey, TableDesign


class Requests(Protocol):
    """The part of a store that a scan needs."""

    design: TableDesign

    def key(self, key: ItemKey) -> dict[str, Any]: ...

    def retried(self, operation: str, work: Callable[[], Any]) -> Any: ...


def scan_answers(
    store: Requests, segment: int, segments: int, start: ItemKey | None, call: Callable[..., Any]
) -> Iterator[tuple[Mapping[str, Any], ItemKey | None]]:
    """The answer to each request, and where the next one starts. `call`: sends one, given its parameters."""
    request: dict[str, Any] = {
        "TableName": store.design.name,
        "ConsistentRead": True,
        "Segment": segment,
        "TotalSegments": segments,
    }
    last = None if start is None else store.key(start)
    while True:
        if last is not None:
            request["ExclusiveStartKey"] = last
        answer = store.retried("scan", partial(call, **request))
        last = answer.get("LastEvaluatedKey")
        yield answer, None if last is None else store.design.key_of(decode_item(last))
        if last is None:
            return


# ── An answer read item by item ──

_BEGIN, _BETWEEN, _END = b'"Items":[{"', b'}},{"', b"}}]"
_CUT = re.compile(re.escape(_BETWEEN) + rb'(?!(?:[SNBLM]|[SNB]S|BOOL|NULL)":)')
"""Between two items; behind an element of a list another one begins with its type."""
_CUTS_WITHIN = 8
"""Of one item at most: what is read of it over and over would cost more than a page that is read at once."""


def read_one_by_one(each: Callable[[WiredItem], Any]) -> Callable[[bytes], Any]:
    """A function that reads an answer as orjson.loads does, but for `Items`, which holds what `each` gives of every item.

    Thousands of items that are read at once have left the processor's cache before they are looked at, and take some three
    times as long. `each` must do nothing else: an answer may turn out to be incomplete, and come again.
    Raises: orjson.JSONDecodeError.
    """

    def read(body: bytes) -> Any:
        begin, end = body.find(_BEGIN) + len(_BEGIN), body.rfind(_END)
        apart = None
        if len(_BEGIN) <= begin <= end:
            apart = _apart(body[begin:end], each)
        if apart is not None:
            return orjson.loads(body[: begin - 2] + body[end + 2 :]) | {"Items": apart}
        answer = orjson.loads(body)
        if isinstance(answer, dict) and isinstance(answer.get("Items"), list):
            answer["Items"] = [each(item) for item in answer["Items"]]
        return answer

    return read


def read_as_texts(see: Callable[[list[bytes], bytes], Any]) -> Callable[[bytes], Any]:
    """The same, but that `Items` holds what `see` gives of the texts of all items: their JSON, without the braces and the
    quotation mark around each; and all of it in one, with them.

    Where a text in an item looks like the end of one, a part may be something else than an item's text: none that is whole
    then, so it is equal to no item's.
    """

    def read(body: bytes) -> Any:
        begin, end = body.find(_BEGIN) + len(_BEGIN), body.rfind(_END)
        if len(_BEGIN) <= begin <= end:
            text = body[begin:end]
            parts = _CUT.split(text) if b'"L":[' in text else text.split(_BETWEEN)
            # Where a text looked like the begin or the end of all items, what is left is no JSON.
            with suppress(orjson.JSONDecodeError):
                answer = orjson.loads(body[: begin - 2] + body[end + 2 :])
                if answer.get("Count") == len(parts):
                    return answer | {"Items": see(parts, body[begin - 2 : end + 2])}
        answer = orjson.loads(body)
        if isinstance(answer, dict) and isinstance(answer.get("Items"), list):
            texts = [orjson.dumps(item)[2:-2] for item in answer["Items"]]
            answer["Items"] = see(texts, b'{"' + _BETWEEN.join(texts) + b"}}")
        return answer

    return read


def _apart(text: bytes, each: Callable[[WiredItem], Any]) -> list[Any] | None:
    """What `each` gives of the items in a text that begins and ends within one; None where it is something else.

    No JSON object is the beginning of another one, so what can be read up to a cut is an item. A cut within one, such as a
    text that looks like a cut, leaves what cannot be read, and the next part belongs to it.
    """
    results, before, within = [], b"", 0
    for part in _CUT.split(text):
        whole = before + part
        try:
            item = orjson.loads(b'{"' + whole + b"}}")
        except orjson.JSONDecodeError:
            before, within = whole + _BETWEEN, within + 1
            if within > _CUTS_WITHIN:
                return None
            continue
        results.append(each(item))
        before, within = b"", 0
    return None if before else results
