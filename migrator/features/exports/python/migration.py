"""What a generated module for the time of a migration does: each answer is `Migration.read`'s, from SQL or from the table.

Text, not code: `migrator.api` stands above this package. It is type-checked with the modules that have it.
"""

TEXT = '''import os
from collections.abc import Mapping
from typing import Any
from typing import Self

from migrator.api import Migration
from migrator.api import Parts
from migrator.runtime.errors import SettingsError


JOB = "job.yaml"


class _Table:
    """`migration`: the service's own, which it writes by, too."""

    def __init__(self, migration: Migration) -> None:
        self._migration = migration

    @classmethod
    def connect(cls) -> Self:
        """By the environment of the process: the job file that MIGRATOR_JOB names, or JOB beside the process."""
        return cls(Migration.load(os.environ.get("MIGRATOR_JOB", JOB)))

    def close(self) -> None:
        self._migration.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, pattern: str, params: Mapping[str, Any]) -> dict[str, list[Item]]:
        """The answer's records by part."""
        try:
            return _by_part(self._migration.read(pattern, **params))
        except SettingsError as error:
            raise RefusedError(str(error)) from error

    async def _ask_async(self, pattern: str, params: Mapping[str, Any]) -> dict[str, list[Item]]:
        try:
            return _by_part(await self._migration.read_async(pattern, **params))
        except SettingsError as error:
            raise RefusedError(str(error)) from error

    def _page(
        self, pattern: str, params: Mapping[str, Any], cursor: str | None, size: int
    ) -> tuple[list[Item], str | None]:
        """Up to `size` records, and the cursor of the next page."""
        try:
            page = self._migration.read_page(pattern, cursor=cursor, size=size, **params)
        except SettingsError as error:
            raise RefusedError(str(error)) from error
        return list(page.items), page.next

    async def _page_async(
        self, pattern: str, params: Mapping[str, Any], cursor: str | None, size: int
    ) -> tuple[list[Item], str | None]:
        try:
            page = await self._migration.read_page_async(pattern, cursor=cursor, size=size, **params)
        except SettingsError as error:
            raise RefusedError(str(error)) from error
        return list(page.items), page.next


def _by_part(answer: Any) -> dict[str, list[Item]]:
    if not isinstance(answer, Parts):
        return {"": list(answer)}
    return {
        name: [] if part is None else [part] if isinstance(part, dict) else list(part)
        for name, part in answer.items()
    }
'''
