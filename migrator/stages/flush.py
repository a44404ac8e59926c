"""Flush: a service makes the items of its own changes at once, so that it reads its own writes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from migrator.errors import MigratorError
from migrator.logs import get_logger
from migrator.ports.live import Change, ChangeMarks
from migrator.retry import ending_at
from migrator.stages.relay import Relay
from migrator.stages.rota import Rota
from migrator.stages.strict import reached

LONGEST_S = 5.0
"""After that the relay is left to it."""
_LATE = f"it took longer than {LONGEST_S:g} s"
_log = get_logger("flush")


@dataclass(frozen=True)
class Flush:
    """Best effort: the marks stay, and a relay finds everything as it should be, or does what was left."""

    marks: ChangeMarks
    relay: Callable[[], Relay]
    rota: Rota

    def __call__(self, changes: Sequence[Change]) -> bool:
        """Whether the items of what was committed are written. Never raises: the service's commit is done."""
        try:
            with ending_at(time.monotonic() + LONGEST_S, _LATE), self.rota.turn():
                relay = self.relay()
                relay.refresh(reached(relay, self.marks.shown(changes)))
        except MigratorError as error:
            _log.warning("flush_left_to_the_relay", reason=str(error))
            return False
        except Exception as error:
            # Whatever it is, the change is committed: a caller who saw an error would write it twice.
            _log.warning("flush_left_to_the_relay", reason=type(error).__name__)
            return False
        return True
