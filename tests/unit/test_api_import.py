"""What `import migrator.api` brings along: next to nothing above SQLAlchemy and boto3, until a migration is loaded."""

from __future__ import annotations

import json
import subprocess
import sys

BASE = "import sqlalchemy, sqlalchemy.orm, boto3, botocore.session\n"
MODULES = f"""\
import json, sys
{BASE}
before = set(sys.modules)
{{then}}
print(json.dumps(sorted(set(sys.modules) - before)))
"""
OURS = 12
"""How many modules of our own at most: pinned by number, as seconds and bytes depend on the machine."""


def brought(then: str) -> list[str]:
    """The modules that are imported besides those of SQLAlchemy and boto3."""
    done = subprocess.run(
        [sys.executable, "-c", MODULES.format(then=then)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


def packages(modules: list[str]) -> set[str]:
    """Those that are no part of Python."""
    return {name.partition(".")[0] for name in modules} - sys.stdlib_module_names


def test_a_service_that_imports_the_api_imports_no_other_package() -> None:
    modules = brought("import migrator.api")
    assert packages(modules) == {"migrator"}
    assert len([name for name in modules if name.startswith("migrator")]) <= OURS
    assert len(modules) <= 2 * OURS


def test_api_types_can_be_imported_and_unknown_names_fail() -> None:
    names = "Answer, DualWrite, Migration, Page, Parts, Records, RoutedPattern, worker_exit"
    assert "migrator.stages.reads.reads" in brought(f"from migrator.api import {names}")
    told = "import migrator.api\ntry:\n    from migrator.api import Migratoin\nexcept ImportError: pass\nelse: raise SystemExit"
    assert packages(brought(told)) == {"migrator"}


def test_service_wiring_loads_no_package_that_it_never_needs() -> None:
    modules = packages(brought("import migrator.stages.session.service"))
    assert not modules & {"click", "jinja2", "pytest", "ministack", "prometheus_client", "psycopg"}
