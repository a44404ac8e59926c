"""Recipes of docs/schema-changes.md and triggers.md as revisions of Alembic, run by its own command while a service writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from alembic.config import main as alembic

from migrator.source.engines.connect import source_url
from tests import pins
from tests.journeys.changing import WRITES, Changing, as_written, changing, printed
from tests.journeys.command import Project
from tests.journeys.test_schema_changes import ends_well
from tests.journeys.test_schema_changes import engine as engine
from tests.journeys.test_schema_changes import made as made
from tests.journeys.test_schema_changes import shop as shop
from tests.journeys.test_schema_changes import url as url

INI = "[alembic]\nscript_location = {folder}\nsqlalchemy.url = {url}\n"
ENV = """\
import sqlalchemy as sa
from alembic import context

engine = sa.create_engine(context.config.get_main_option("sqlalchemy.url"), poolclass=sa.pool.NullPool)
with engine.connect() as connection:
    context.configure(connection=connection)
    with context.begin_transaction():
        context.run_migrations()
"""
REVISION = """\
import sqlalchemy as sa
from alembic import op

revision, down_revision = {name!r}, {after!r}


def upgrade() -> None:
    {upgrade}


def downgrade() -> None:
    raise NotImplementedError
"""
EXPAND = 'op.add_column("customer", sa.Column("title", sa.String(40)))'
FILL = 'op.execute("UPDATE customer SET title = name WHERE title IS NULL")'
CONTRACT = 'op.drop_column("customer", "name")'


@dataclass(frozen=True)
class Migrations:
    """A folder of Alembic's, as a team has one. `shop`: whose service goes on for a round before and after each upgrade."""

    folder: Path
    shop: Changing

    def __post_init__(self) -> None:
        (self.folder / "versions").mkdir(parents=True)
        url = source_url(self.shop.url).render_as_string(hide_password=False)
        # A statement of SQLite's waits so long for the service's.
        url += "?timeout=120" if self.shop.engine == "sqlite" else ""
        (self.folder / "alembic.ini").write_text(INI.format(folder=self.folder, url=url.replace("%", "%%")))
        (self.folder / "env.py").write_text(ENV)

    def add(self, name: str, text: str) -> None:
        (self.folder / "versions" / f"{name}.py").write_text(text)

    def upgrade(self, name: str = "head") -> None:
        self.shop.service.goes_round()
        # In this process, as the service is: a file of SQLite's that commands here have opened and closed has lost the
        # locks of all its connections here, so that another process takes itself for the last one and deletes the WAL.
        alembic(["-c", str(self.folder / "alembic.ini"), "upgrade", name])
        self.shop.service.goes_round()


def test_a_column_is_renamed_by_expanding_and_contracting(shop: Changing, tmp_path: Path) -> None:
    migrations = Migrations(tmp_path / "migrations", shop)
    steps = {"expand": EXPAND, "fill": FILL, "contract": CONTRACT}
    for after, (name, upgrade) in zip([None, *steps], steps.items(), strict=False):
        migrations.add(name, REVISION.format(name=name, after=after, upgrade=upgrade))
    migrations.upgrade("expand")
    both = (
        "INSERT INTO customer (id, name, title, note) VALUES ({n}, 'N{n}', 'N{n}', 'a')",
        "UPDATE customer SET name = 'M{n}', title = 'M{n}' WHERE id = {old}",
        WRITES["customer"][2],
    )
    shop.service.deploy(customer=both)
    migrations.upgrade("fill")
    shop.map(("{name: name}", "{name: title}"))
    shop.go_on()
    shop.service.deploy(customer=as_written("customer", "name", "title"))
    migrations.upgrade("contract")
    assert ends_well(shop, "A column is renamed, in steps")


AROUND = {
    "postgresql": ((), ()),
    "sqlite": (("BEGIN IMMEDIATE",), ()),
    "mariadb": (("LOCK TABLES customer WRITE",), ("UNLOCK TABLES",)),
}
"""What the page puts around the statements of a rename at once."""


def test_column_is_renamed_at_once_with_triggers_from_capture(
    engine: str, url: str, made: Project, tmp_path: Path
) -> None:
    change = "ALTER TABLE customer RENAME COLUMN name TO renamed"
    edits = [("{name: name}", "{name: renamed}")]
    text = printed(engine, url, made, change, edits)
    begin, end = AROUND[engine]
    first = "".join(f"    {statement!r},\n" for statement in (*begin, change))
    last = "".join(f"    {statement!r},\n" for statement in end)
    text = text.replace("UPGRADE = [\n", f"UPGRADE = [\n{first}", 1)
    text = text.replace("]\n\nDOWNGRADE", f"{last}]\n\nDOWNGRADE", 1)
    with changing(engine, url, made) as shop:
        # The service of before knows the old name alone: it writes the column again when the new one is there.
        shop.service.deploy(customer=[one for one in WRITES["customer"] if "name" not in one])
        shop.given.append("migrator capture install JOB --as alembic")
        migrations = Migrations(tmp_path / "migrations", shop)
        migrations.add("renamed", text)
        migrations.upgrade()
        shop.service.deploy(customer=as_written("customer", "name", "renamed"))
        shop.map(*edits)
        assert pins.said(shop.give("capture install JOB").out)
        shop.relay_anew()
        shop.give("backfill JOB")
        shop.repair()
        assert ends_well(shop, "A column is renamed at once")
