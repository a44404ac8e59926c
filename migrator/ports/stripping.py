"""Our attributes and items, taken out of a table for good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from migrator.model import Item


class Stripping(Protocol):
    """Raises, from every method: StoppedError when DynamoDB gave up, with any part of it done."""

    def strip(self, items: Sequence[Item]) -> int:
        """Takes our attributes from each item whose source still is what was given; how many had them."""

    def remove(self, own: Sequence[Item]) -> int:
        """Deletes each tombstone and control item that still is one; how many were."""
