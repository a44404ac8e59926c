"""Whether changes still leave marks: a relay whose triggers are gone would have nothing to do, and seem well."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from migrator.logs import get_logger
from migrator.stages.capture import CAPTURED, CaptureStatus

LOOK_S = 60.0
_log = get_logger("relay")


@dataclass
class CaptureLook:
    """`status`: asks the source. Tells of what is not captured once a minute, as long as it lasts."""

    status: Callable[[], CaptureStatus]
    clock: Callable[[], float] = time.monotonic
    _looked_at: float | None = None

    def __call__(self) -> None:
        """Raises: what `status` raises."""
        if self._looked_at is None:
            # The start has looked already.
            self._looked_at = self.clock()
        if self.clock() - self._looked_at < LOOK_S:
            return
        self._looked_at = self.clock()
        found = self.status()
        open_ = {one.table: one.state for one in found.tables if one.state not in CAPTURED}
        if found.installation is None or open_:
            _log.warning(
                "changes_leave_no_mark", tables=open_, installed=found.installation is not None, see=_SEE
            )


_SEE = "`migrator capture status`; after `migrator capture install` run `migrator verify --repair`"
