"""What features add to commands of stages: filled in where a feature declares its commands, read when a command runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ENGINES: dict[str, Callable[..., Any]] = {}
"""By the word of `--engine`: opens what works a run's pages elsewhere (`migrator.commands.engines.PageEngine`)."""
DEFINITIONS: dict[str, Callable[..., list[str]]] = {}
"""By the word of `--as`: the lines of one part of a table's definition, as another tool has it."""
PROBES: dict[str, Callable[..., int]] = {}
"""By what is probed: what `migrator doctor --probe` runs."""
