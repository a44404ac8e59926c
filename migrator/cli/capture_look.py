"""Whether changes still leave marks: a relay whose triggers are gone would have nothing to do, and seem well."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from migrator.logs import get_logger
from migrator.stages.capture import ROWS_CAPTURED, CaptureStatus

LOOK_S = 60.0
_log = get_logger("relay")


@dataclass
class CaptureLook:
    """`status`: asks the source. Tells of what is not captured once a minute, as long as it lasts; of a partition that
    came, once."""

    status: Callable[[], CaptureStatus]
    clock: Callable[[], float] = time.monotonic
    _looked_at: float | None = None
    _partitions: set[str] = field(default_factory=set)

    def __call__(self) -> None:
        """Raises: what `status` raises."""
        if self._looked_at is None:
            # The start has looked already.
            self._looked_at = self.clock()
        if self.clock() - self._looked_at < LOOK_S:
            return
        self._looked_at = self.clock()
        found = self.status()
        open_ = {one.table: one.state for one in found.tables if one.state not in ROWS_CAPTURED}
        if found.installation is None or open_:
            _log.warning(
                "changes_leave_no_mark", tables=open_, installed=found.installation is not None, see=_SEE
            )
        if set(found.partitions) - self._partitions:
            _log.warning("truncate_leaves_no_mark", new_partitions=found.partitions, mend=_INSTALL)
        self._partitions = set(found.partitions)


_INSTALL = "migrator capture install"
_SEE = "`migrator capture status`; after `migrator capture install` run `migrator verify --repair`"
