"""A progress that is not shown."""

from __future__ import annotations

from migrator.mapping.model.journal import Tally


class Silent:
    """model.journal.Progress without a display."""

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def page_planned(self, entity: str, number: int) -> None:
        return None

    def entity_started(self, entity: str, rows_done: int, rows_total: int) -> None:
        return None

    def page_done(self, entity: str, number: int, tally: Tally, took_ms: int) -> None:
        return None

    def others_done(self, entity: str, tally: Tally) -> None:
        return None

    def entity_done(self, entity: str) -> None:
        return None
