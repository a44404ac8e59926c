"""What `migrator doctor` runs with `--probe`."""

from __future__ import annotations

from typing import Any

from migrator.cli.command_line import PROBES


def _probe(*given: Any, **asked: Any) -> int:
    from migrator.features.probe.work import probe

    return probe(*given, **asked)


PROBES["dynamodb"] = _probe
