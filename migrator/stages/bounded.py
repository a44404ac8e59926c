"""The edges as a shadow sees them: no answer of more rows than are compared, and nothing asked past its time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from migrator.errors import StoppedError
from migrator.mapping.handed import TooManyError
from migrator.ports import ItemStore, QueryPage, Questions


class Bounds:
    """For one question. `at_most`: rows of a statement, or items read for a request. `late`: whether its time is over."""

    def __init__(self, at_most: int, late: Callable[[], bool]) -> None:
        self.at_most = at_most
        self.late = late

    def check(self, read: int = 0) -> None:
        """Raises: TooManyError, StoppedError."""
        if read > self.at_most:
            raise TooManyError(f"too many: more than {self.at_most:,} rows, of which nothing is compared")
        if self.late():
            raise StoppedError("its deadline is over (reads.shadow.deadline_s)")


class BoundedSource:
    """What answers questions of a source, within bounds."""

    def __init__(self, source: Questions, bounds: Bounds) -> None:
        self._source = source
        self._bounds = bounds

    def query(
        self,
        sql: str,
        params: Mapping[str, Any],
        schema: str | None = None,
        *,
        at_most: int | None = None,
    ) -> list[tuple[Any, ...]]:
        """`at_most`: as of the source; who wants fewer than the bound is not given too many."""
        self._bounds.check()
        most = self._bounds.at_most if at_most is None else min(at_most, self._bounds.at_most)
        found = self._source.query(sql, params, schema, at_most=most)
        self._bounds.check(len(found))
        return found


class BoundedStore:
    """The part of ports.ItemStore that answers questions. What is read and not shown counts, too."""

    def __init__(self, store: ItemStore, bounds: Bounds) -> None:
        self._store = store
        self._bounds = bounds
        # Threads of one question add to it; a count that is lost lets one page more through.
        self._read = 0

    def query(self, request: Mapping[str, Any], start: Mapping[str, Any] | None = None) -> QueryPage:
        self._bounds.check()
        # One more than is allowed says that there are too many.
        limit = min(int(request.get("Limit", self._bounds.at_most + 1)), self._bounds.at_most + 1)
        return self._counted(self._store.query({**request, "Limit": limit}, start))

    def get_item(self, request: Mapping[str, Any]) -> QueryPage:
        self._bounds.check()
        return self._counted(self._store.get_item(request))

    def batch_get(self, request: Mapping[str, Any]) -> QueryPage:
        self._bounds.check()
        return self._counted(self._store.batch_get(request))

    def _counted(self, page: QueryPage) -> QueryPage:
        self._read += len(page.items)
        self._bounds.check(self._read)
        return page
