"""Captured tables, and the port that installs and inspects triggers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from migrator.model.facts import CollectionPlan, EntityPlan, TableFacts


@dataclass(frozen=True)
class Lookup:
    """How one changed row leads to root rows of an entity.

    `values`: columns of the changed table, by written name. Where nothing else is said they are the root's key.
    Else roots are those for which `columns` (real names) of the alias `parent` hold the values: an alias of the
    entity's joins ('' the root), or with `collection` one of the list's ('' the child). `climb`: and all rows
    that have such a row among their ancestors.
    """

    entity: str
    values: tuple[str, ...]
    columns: tuple[str, ...] = ()
    parent: str = ""
    collection: CollectionPlan | None = None
    climb: CollectionPlan | None = None

    @property
    def is_root(self) -> bool:
        return not self.columns


@dataclass(frozen=True)
class Captured:
    """A table whose changes leave marks.

    `name`: schema.table or table, as the source has it. `columns`: written names that a mark's images hold.
    `watched`: an update that changes none of these leaves no mark (None: every update does).
    """

    name: str
    table: TableFacts
    columns: tuple[str, ...]
    watched: tuple[str, ...] | None
    lookups: tuple[Lookup, ...]


# ──
# What the capture stage needs of a source: triggers that are there, and the statements that put them
# there.

CaptureState = Literal["captured", "services", "missing", "partition", "stale", "disabled", "extra"]

MarkedBy = Literal["triggers", "services"]
"""Who leaves the marks: triggers of ours, or the services themselves, by the adapter that they import."""


@dataclass(frozen=True, slots=True)
class TableCapture:
    """How one table is captured. `extra`: it has triggers of ours, and the mapping no longer reads it; `services`: it
    has none, and needs none; `partition`: it is one that came since the install, and only a TRUNCATE of it leaves no mark.

    Where it is stale, `came`: columns that triggers should name and do not; `gone`: that they name and should not.
    """

    table: str
    state: CaptureState
    came: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """Statements of one transaction (MariaDB and MySQL commit each), and what takes them back. `table`: '' for ours."""

    table: str
    statements: tuple[str, ...]
    undo: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Installation:
    """What is installed, for which job. `ticket`: the last one drawn."""

    id: str
    job: str
    version: int
    epoch: int
    ticket: int
    marked_by: MarkedBy = "triggers"


class Capture(Protocol):
    """Capture in one source. Every method is one transaction of its own, tried again where a lock was in the way.

    Raises, from every method: SourceError, without values; Interrupted.
    """

    def captured(self, plans: Sequence[EntityPlan]) -> list[Captured]:
        """The tables to capture, in the order of their names; no view of which the mapping says what changes it."""

    def refusals(self, tables: Sequence[Captured], marked_by: MarkedBy = "triggers") -> list[str]:
        """All reasons why changes of the tables cannot be captured, with what to do."""

    def limits(self, marked_by: MarkedBy = "triggers") -> list[str]:
        """Changes of the tables that would leave no mark, and that nobody may make therefore."""

    def installation(self) -> Installation | None: ...

    def install_steps(
        self, tables: Sequence[Captured], job: str, marked_by: MarkedBy = "triggers"
    ) -> list[Step]:
        """What is still to be done until every table is captured as it should be; nothing for what is so already.

        Where services have left the marks so far, triggers come first, and only then it is they that leave them.
        """

    def uninstall_steps(self) -> list[Step]:
        """What takes away everything of ours; our tables last."""

    def do(self, step: Step) -> None: ...

    def states(self, tables: Sequence[Captured]) -> list[TableCapture]: ...
