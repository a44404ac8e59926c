"""The packages that a job needs, with their versions."""

from __future__ import annotations

import platform
from importlib.metadata import version
from importlib.util import find_spec

from migrator import wiring
from migrator.settings import Job

_EMBEDDED, _EXTRA_OF_EMBEDDED = "embedded", ("local", "ministack")
"""How an endpoint begins that needs an extra; the extra, and the module that it brings."""


def packages_for(job: Job | None) -> dict[str, str | None]:
    """Versions of Python and of the packages that matter; None under the name of an extra that the job lacks."""
    found: dict[str, str | None] = {"Python": platform.python_version()}
    found |= {"migrator": version("single-table-migrator")}
    found |= {name: version(name) for name in ("boto3", "sqlalchemy")}
    return found | dict.fromkeys(extra for extra, module in _extras(job) if find_spec(module) is None)


def _extras(job: Job | None) -> list[tuple[str, str]]:
    if job is None:
        return []
    found = {wiring.extra_for(job.source.url)}
    if (job.target.endpoint or "").startswith(_EMBEDDED):
        found.add(_EXTRA_OF_EMBEDDED)
    return sorted(extra for extra in found if extra is not None)
