"""What `migrator doctor` runs with `--probe`."""

from __future__ import annotations

from typing import Any

from migrator.cli import command_line as cli


def _probe(*given: Any, **asked: Any) -> int:
    from migrator.features.probe.work import probe

    return probe(*given, **asked)


cli.PROBES["dynamodb"] = _probe
