"""Marks left in the transaction of a service's change, as its triggers would leave them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from migrator.errors import MissingNameError, UnmarkedError
from migrator.source.adapter.driver import Driver
from migrator.source.adapter.pending import Changed
from migrator.source.adapter.placeholders import escaped, placeholder
from migrator.source.capture.design import Ddl
from migrator.source.failures import source_error


def leave_marks(driver: Driver, ddl: Ddl, changed: Sequence[Changed]) -> None:
    if not changed:
        return
    style = driver.paramstyle
    values = ", ".join(placeholder(style, number) for number in range(3))
    text = f"INSERT INTO {ddl.mark} (table_name, image_before, image_after, changed_at) VALUES ("
    statement = f"{escaped(text, style)}{values}, {escaped(ddl.now, style)})"
    with explained(), _last_id_kept(driver):
        driver.many(statement, [(one.table.name, one.before, one.after) for one in changed])


@contextmanager
def explained() -> Iterator[None]:
    """Raises: UnmarkedError with what to do where the table of marks is gone."""
    try:
        yield
    except Exception as error:
        why = source_error(error, "dual write", "leaving marks")
        if not isinstance(why, MissingNameError):
            raise  # as any statement of the service would
        raise UnmarkedError(f"{why}; run `migrator capture install` with this job") from None


@contextmanager
def _last_id_kept(driver: Driver) -> Iterator[None]:
    """On MariaDB and MySQL the service's LAST_INSERT_ID() stays its own, as it would with triggers."""
    if not driver.engine.sessions.keeps_last_id:
        yield
        return
    last = driver.rows(driver.sql("SELECT LAST_INSERT_ID()"))[0][0]
    yield
    driver.rows(driver.sql("SELECT LAST_INSERT_ID(").value(last).text(")"))
