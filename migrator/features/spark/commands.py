"""The engine `spark` of `backfill` and `verify`."""

from __future__ import annotations

from typing import Any

from migrator.cli.command_line import ENGINES


def _open(*given: Any) -> Any:
    from migrator.features.spark.work import open_spark

    return open_spark(*given)


ENGINES["spark"] = _open
