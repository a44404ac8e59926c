"""A statement under way: what it says, the rows as they were before it, and what it changed."""

from __future__ import annotations

from dataclasses import dataclass, field

from migrator.source.adapter.driver import Driver
from migrator.source.adapter.images import State
from migrator.source.adapter.keys import Key, Said
from migrator.source.adapter.watched import Place, Watched
from migrator.source.adapter.write import words_of


@dataclass(frozen=True, slots=True)
class Changed:
    """One row that a transaction changed: images as marks hold them; None is no row."""

    table: Watched
    before: str | None
    after: str | None


@dataclass
class Pending:
    """A statement that is about to run. `states`: the rows as they are before it, by table.

    `meant`: keys of those that the statement itself chooses, not a foreign key for it. `returning`: SQL to be added, so
    that it gives back keys that nobody knows; `made`: keys that it gave back. `done_before`: Driver.done before it.
    """

    said: Said
    states: dict[Place, State] = field(default_factory=dict)
    meant: list[Key] = field(default_factory=list)
    read_by_where: bool = False
    returning: str = ""
    made: list[Key] = field(default_factory=list)
    done_before: int = 0

    @property
    def is_alone(self) -> bool:
        """Whether each of its many parameters is to run by itself, so that its keys are known."""
        return bool(self.returning) and len(self.said.parameters) > 1

    def may_be_kept(self, driver: Driver, text: str, *, is_refused: bool) -> bool:
        """Whether the transaction may keep changes of the statement, which failed.

        `is_refused`: the database said no; else its caller failed, perhaps when it was done. Of a statement that it
        refuses PostgreSQL keeps nothing, the others what was done for earlier parameters, SQLite also that of OR FAIL.
        """
        is_many = len(self.said.parameters) > 1
        rule = driver.engine.outcomes.keeps_refused
        if rule == "counted":
            in_parts = is_many or self.said.table.keeps_parts or "fail" in words_of(text)
            return driver.done != self.done_before and (in_parts or not is_refused)
        return not is_refused or (is_many and rule == "earlier")
