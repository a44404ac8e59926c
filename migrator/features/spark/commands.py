"""The engine `spark` of `backfill` and `verify`."""

from __future__ import annotations

from typing import Any

from migrator.cli import command_line as cli


def _open(*given: Any) -> Any:
    from migrator.features.spark.work import open_spark

    return open_spark(*given)


cli.ENGINES["spark"] = _open
