"""Private names of libraries: which are used, and the versions with which they were tried.

A library may rename them in any release. A version outside these bounds needs the tests of the modules that use them
(`.ci/nightly lowest newest`); then its bound moves here.
"""

from __future__ import annotations

import ast
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

import migrator

TRIED = {
    "botocore": (
        ">=1.43,<2",
        "_modify_request_before_signing _proxy_config _request_signer _resolve_endpoint_ruleset _timeout"
        " _user_agent_creator _manager _setup_ssl_cert _verify",
    ),
    "urllib3": (">=2,<3", "_new_conn"),
    "pymysql": (
        ">=1.1,<1.3",
        "_execute_command _force_close _next_seq_id _read_bytes _read_timeout _rfile _sock",
    ),
    "sqlalchemy": (">=2.0,<2.2", "_handle_dbapi_exception _max_overflow _rowcount"),
    "psycopg": (">=3.1,<3.4", "_tx"),
    "pyspark": (">=3.5,<5", "_active_spark_context"),
}
PUBLIC = frozenset({"_asdict", "_exit", "_fields", "_replace"})
"""Documented, of namedtuple and os."""


def foreign_private_names() -> set[str]:
    """Private attributes of drivers and clients that no module of the same folder of ours defines."""
    package = Path(migrator.__file__).parent
    folders = [path for path in package.iterdir() if path.is_dir()]
    return {name for folder in folders for name in _foreign(folder)} - PUBLIC


def _foreign(folder: Path) -> set[str]:
    trees = [ast.parse(path.read_text()) for path in folder.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    ours = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    ours |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    ours |= {node.attr for node in attributes if ast.unparse(node.value) in ("self", "cls")}
    used = {node.attr for node in attributes if node.attr.startswith("_") and not node.attr.endswith("__")}
    return used - ours


def test_private_names_are_listed_with_their_library() -> None:
    listed = {name for _, names in TRIED.values() for name in names.split()}
    assert foreign_private_names() == listed


@pytest.mark.parametrize("package", TRIED)
def test_installed_version_was_tried(package: str) -> None:
    pytest.importorskip(package)
    installed = version(package)
    assert SpecifierSet(TRIED[package][0]).contains(installed, prereleases=True), installed
