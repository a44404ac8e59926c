"""Images of marks, as the values that the driver gives when it reads the row itself."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy.engine import Connection

from migrator.source.engines.table import engine_at


class Images:
    """Reads images on one connection. What was learnt of types is kept in `domains`."""

    def __init__(self, connection: Connection, domains: dict[int, int]) -> None:
        self._decode = engine_at(connection).capturing.decode(connection, domains)

    def read(self, text: str | None) -> dict[str, Any] | None:
        """The image. It stands by itself: a table that was altered or dropped since is not looked at.

        What no longer is a value of its type stays text; what is no image at all is an empty one.
        """
        if text is None:
            return None
        try:
            held = json.loads(text)
            return {name: self._value(value) for name, value in held.items()}
        except (ValueError, TypeError, AttributeError, ArithmeticError, LookupError, RecursionError):
            return {}

    def _value(self, held: str | None) -> Any:
        if held is None:
            return None
        word, _, text = held.partition(":")
        return self._decode(word, text)
