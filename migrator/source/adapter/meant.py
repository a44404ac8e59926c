"""Which table a session means by a name that stands alone."""

from __future__ import annotations

from migrator.source.adapter.driver import Driver
from migrator.source.adapter.images import Images
from migrator.source.adapter.keys import Said


def home_of(driver: Driver, images: Images, name: str) -> str:
    """The schema in which the session finds a name that stands alone; MySQL: its database."""
    before, _, after = driver.engine.sessions.home.partition("{name}")
    asked = driver.sql(before)
    if after:
        asked.value(images.ddl.quoted(name)).text(after)
    found = driver.rows(asked)
    return str(found[0][0]) if found else ""


def is_meant(driver: Driver, images: Images, said: Said) -> bool:
    """Whether the session really takes the statement's name for this table; asked only where something is odd."""
    if said.write.schema is not None or not driver.engine.sessions.home:
        return True
    home = home_of(driver, images, said.write.table)
    return images.tables.found(None, said.write.table, home) is said.table
