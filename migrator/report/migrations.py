"""Steps of capture as files for those who change the source: SQL, or a migration of Alembic."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from migrator.ports.capture import Step

_END = "//migrator//"
"""Nothing that a name of a table would hold."""


def sql_text(steps: Sequence[Step]) -> str:
    """Every statement with a semicolon, a comment before each transaction. Clients of MariaDB and MySQL are told where a
    trigger ends that has a semicolon itself."""
    parts = [f"-- {step.table or 'our own'}\n{_statements(step.statements)}" for step in steps]
    return "\n".join(parts)


def alembic_text(steps: Sequence[Step], job: str) -> str:
    """A migration file. Its down_revision is for its reader to fill in."""
    up = [statement for step in steps for statement in step.statements]
    down = [statement for step in reversed(steps) for statement in step.undo]
    revision = hashlib.sha256("\0".join(up).encode()).hexdigest()[:12]
    return f'''"""Capture of changes for job {job}."""

import sqlalchemy as sa
from alembic import op

revision = "{revision}"
down_revision = None  # the revision that this one follows
branch_labels = None
depends_on = None

UPGRADE = [
{_listed(up)}]

DOWNGRADE = [
{_listed(down)}]


def upgrade() -> None:
    for statement in UPGRADE:
        op.execute(sa.text(statement.replace(":", "\\\\:")))


def downgrade() -> None:
    for statement in DOWNGRADE:
        op.execute(sa.text(statement.replace(":", "\\\\:")))
'''


def _statements(statements: Sequence[str]) -> str:
    return "".join(map(_ended, statements))


def _ended(statement: str) -> str:
    if statement.startswith("CREATE TRIGGER `") and ";" in statement:
        return f"DELIMITER {_END}\n{statement}\n{_END}\nDELIMITER ;\n"
    return f"{statement};\n"


def _listed(statements: Sequence[str]) -> str:
    return "".join(f"    {statement!r},\n" for statement in statements)
