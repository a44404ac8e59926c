"""The packages that a job needs, with their versions."""

from __future__ import annotations

import platform
from importlib.metadata import version
from importlib.util import find_spec

from migrator.settings import Job

_EXTRAS = {"postgres": "psycopg", "mysql": "pymysql", "local": "ministack"}
"""Extras by the module that each brings."""

_NEEDED_BY = {"postgres": "postgres", "mysql": "mysql", "mariadb": "mysql", "embedded": "local"}
"""How a URL or an endpoint begins that needs an extra."""


def packages_for(job: Job | None) -> dict[str, str | None]:
    """Versions of Python and of the packages that matter; None under the name of an extra that the job lacks."""
    found: dict[str, str | None] = {"Python": platform.python_version()}
    found |= {"migrator": version("single-table-migrator")}
    found |= {name: version(name) for name in ("boto3", "sqlalchemy")}
    words = () if job is None else (job.source.url, job.target.endpoint or "")
    needed = {extra for start, extra in _NEEDED_BY.items() for word in words if word.startswith(start)}
    return found | dict.fromkeys(extra for extra in sorted(needed) if find_spec(_EXTRAS[extra]) is None)
