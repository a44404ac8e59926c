"""The port that installs and inspects triggers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct

from migrator.mapping.model.facts import Captured, EntityPlan, TableFacts

# ──
# What the capture stage needs of a source: triggers that are there, and the statements that put them
# there.

CaptureState = Literal[
    "captured",
    "services",
    "missing",
    "partition",
    "stale",
    "disabled",
    "extra",
    "refused",
    "unread",
    "lost",
    "unidentified",
]

MarkedBy = Literal["triggers", "services", "log"]
"""What leaves the marks: triggers of ours, the services themselves, by the adapter that they import, or a reader of the
database's log."""


class TableCapture(Struct, frozen=True):
    """How one table is captured. `extra`: it has triggers of ours, and the mapping no longer reads it; `services`: it
    has none, and needs none; `partition`: it is one that came since the install, and only a TRUNCATE of it leaves no mark;
    `refused`: what others than `migrator reverse` write to it is refused; `unread`: of a DynamoDB table, no stream
    tells us of all its changes.
    `lost`: the slot of the database's log misses changes; `unidentified`: the log lacks columns of keys or links.

    Where it is stale, `came`: columns that triggers should name and do not; `gone`: that they name and should not.
    """

    table: str
    state: CaptureState
    came: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


class Step(Struct, frozen=True):
    """Statements of one transaction (MariaDB and MySQL commit each), and what takes them back. `table`: '' for ours."""

    table: str
    statements: tuple[str, ...]
    undo: tuple[str, ...] = ()


class Installation(Struct, frozen=True):
    """What is installed, for which job. `ticket`: the last one drawn."""

    id: str
    job: str
    version: int
    epoch: int
    ticket: int
    marked_by: MarkedBy = "triggers"


class CaptureRecord(Protocol):
    """The record that capture is installed, of a source that keeps nothing of ours. Every method is one transaction."""

    def installed(self) -> Installation | None: ...

    def install(self) -> None:
        """A new installation, whatever was before: marks that were to come were lost, or none was. Its tickets go on."""

    def uninstall(self) -> None:
        """Its tickets stay known."""


class Capture(Protocol):
    """Capture in one source. Every method is one transaction of its own, tried again where a lock was in the way.

    Raises, from every method: SourceError, without values; Interrupted.
    """

    @property
    def means(self) -> str:
        """What captures the changes, in the plural: triggers, streams, publication and slot."""

    def captured(self, plans: Sequence[EntityPlan]) -> list[Captured]:
        """The tables to capture, in the order of their names; no view of which the mapping says what changes it."""

    def refusals(self, tables: Sequence[Captured], marked_by: MarkedBy = "triggers") -> list[str]:
        """All reasons why changes of the tables cannot be captured, with what to do."""

    def limits(self, marked_by: MarkedBy = "triggers") -> list[str]:
        """Changes of the tables that would leave no mark, and that must not be made therefore."""

    def installation(self) -> Installation | None: ...

    def install_steps(
        self, tables: Sequence[Captured], job: str, marked_by: MarkedBy = "triggers"
    ) -> list[Step]:
        """What is still to be done until every table is captured as it should be; nothing for what is so already.

        Where services have left the marks so far, triggers come first, and only then it is they that leave them.
        """

    def refuse_steps(self, tables: Sequence[TableFacts]) -> list[Step]:
        """What is still to be done until no other than `migrator reverse` can write these tables.

        An install that captures such a table again takes it back.
        """

    def uninstall_steps(self) -> list[Step]:
        """What takes away everything of ours; our tables last."""

    def taken_away(self, tables: Sequence[str]) -> str:
        """What an uninstall has done, whose steps were of these tables, as a sentence for people."""

    def do(self, step: Step) -> None: ...

    def states(self, tables: Sequence[Captured]) -> list[TableCapture]: ...
