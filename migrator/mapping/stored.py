"""Values kept in S3: the pointer that an item holds, and the bytes that it points to."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from migrator.errors import RowError
from migrator.mapping.json_text import json_text
from migrator.model import Value


@dataclass(frozen=True, slots=True)
class Content:
    """An object: its name (64 hex digits of SHA-256 over `data`), its bytes, and what they are."""

    name: str
    data: bytes
    form: str

    @property
    def pointer(self) -> dict[str, Value]:
        return {"s3": self.name, "bytes": len(self.data), "form": self.form}


def content_of(value: Any, over: int) -> Content | None:
    """What S3 is to keep of an attribute's value; None where the value is NULL or takes `over` bytes at most."""
    if value is None:
        return None
    data, form = _bytes(value)
    if len(data) <= over:
        return None
    return Content(hashlib.sha256(data).hexdigest(), data, form)


def _bytes(value: Any) -> tuple[bytes, str]:
    if isinstance(value, str):
        return value.encode(), "text"
    if isinstance(value, bytes):
        return value, "binary"
    if isinstance(value, (dict, list)):
        return json_text(value).encode(), "json"
    raise RowError("only text, binary and JSON can be kept in S3")
