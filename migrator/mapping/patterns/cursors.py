"""Cursors for reads page by page: opaque, signed texts that say where the next page begins. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from msgspec import Struct

from migrator.mapping.model.evidence import Side
from migrator.mapping.model.table import Item, Value
from migrator.runtime.errors import SettingsError

_SIGNED_BYTES = 16
_FORM = 1
Start = Item | None
"""Where one partition goes on: the key attributes of the last item that was given; None before the first."""


class Cursor(Struct, frozen=True):
    """The state of a read page by page. `given`: items or rows on the pages before.

    `asked`: a digest of the parameters; `begun_at`: seconds since 1970, of the first page. `starts`: the table's
    partitions; `row`: a digest of the last row, SQL's.
    """

    pattern: str
    asked: str
    revision: str
    side: Side
    begun_at: float
    given: int
    starts: tuple[Start, ...] = ()
    row: str = ""


def digest_of(params: Mapping[str, str]) -> str:
    return _digest(json.dumps(sorted(params.items())))


def row_digest(text: str) -> str:
    return _digest(text)


def signed(cursor: Cursor, key: str) -> str:
    """The cursor as signed text: it is not encrypted, and cannot be changed without the key."""
    content = [
        _FORM,
        cursor.pattern,
        cursor.asked,
        cursor.revision,
        cursor.side,
        cursor.begun_at,
        cursor.given,
        [start and [_plain(name, start[name]) for name in start] for start in cursor.starts],
        cursor.row,
    ]
    body = json.dumps(content, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(_signature(body, key) + body).decode("ascii").rstrip("=")


def opened(text: str, key: str) -> Cursor:
    """The cursor of a text. Raises: SettingsError where it was not signed with the key."""
    try:
        whole = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise _forged() from None
    signature, body = whole[:_SIGNED_BYTES], whole[_SIGNED_BYTES:]
    if not hmac.compare_digest(signature, _signature(body, key)):
        raise _forged()
    form, pattern, params_digest, revision, side, begun_at, given, starts, row = json.loads(body)
    if form != _FORM:
        raise SettingsError("the cursor was made by another version of migrator; start paging again")
    read = tuple(None if start is None else dict(map(_value, start)) for start in starts)
    return Cursor(pattern, params_digest, revision, side, begun_at, given, read, row)


def _forged() -> SettingsError:
    what = "invalid cursor: it is damaged, forged, or signed with another reads.cursor_key"
    return SettingsError(f"{what}; start paging again, and give all processes the same key")


def _signature(body: bytes, key: str) -> bytes:
    return hmac.new(key.encode(), b"migrator cursor " + body, hashlib.sha256).digest()[:_SIGNED_BYTES]


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=12).hexdigest()


def _plain(name: str, value: Value) -> list[Any]:
    """A key attribute as JSON can hold it: text, an exact number, or bytes."""
    if isinstance(value, bytes):
        return [name, "B", base64.b64encode(value).decode("ascii")]
    return [name, "S", value] if isinstance(value, str) else [name, "N", str(value)]


def _value(plain: list[Any]) -> tuple[str, Value]:
    name, type_, text = plain
    if type_ == "B":
        return name, base64.b64decode(text)
    if type_ == "S":
        return name, text
    number = Decimal(text)
    return name, int(number) if number == number.to_integral_value() else number
