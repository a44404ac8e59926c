"""Flush: a service makes the items of its own changes at once, so that it reads its own writes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from migrator.errors import MigratorError
from migrator.logs import get_logger
from migrator.ports.live import Change, ChangeMarks
from migrator.retry import ending_at
from migrator.stages.relay import Relay
from migrator.stages.rota import Rota
from migrator.stages.strict import reached

LONGEST_S = 5.0
"""After that it is left to the relay."""
REST_S = 10.0
"""So long nothing is tried after a failure: a table that does not answer would cost each commit LONGEST_S."""
_LATE = f"it took longer than {LONGEST_S:g} s"
_log = get_logger("flush")


@dataclass(frozen=True)
class Flush:
    """Best effort: the marks stay, and a relay finds everything as it should be, or does what was left."""

    marks: ChangeMarks
    relay: Callable[[], Relay]
    rota: Rota
    clock: Callable[[], float] = time.monotonic
    _failed_at: list[float] = field(default_factory=list)
    """The time of the last failure, or nothing."""

    def __call__(self, changes: Sequence[Change]) -> bool:
        """Whether the items of what was committed are written. Never raises: the service's commit is done."""
        if self._failed_at and self.clock() - self._failed_at[0] < REST_S:
            return False
        why = self._why_not(changes)
        self._failed_at[:] = [self.clock()] if why else []
        if why:
            _log.warning("flush_left_to_the_relay", reason=why, rests_s=REST_S)
        return not why

    def _why_not(self, changes: Sequence[Change]) -> str:
        try:
            with ending_at(time.monotonic() + LONGEST_S, _LATE), self.rota.turn():
                relay = self.relay()
                relay.refresh(reached(relay, self.marks.shown(changes)))
        except MigratorError as error:
            return str(error) or type(error).__name__
        except Exception as error:
            # Whatever it is, the change is committed: a caller who saw an error would write it twice.
            return type(error).__name__
        return ""
