"""A service of the shop's: models, a job for its tables, and what must hold when all is at rest."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship, sessionmaker

from migrator.api import Migration
from migrator.dynamodb.admin import DynamoTableAdmin
from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.store import DynamoStore
from migrator.mapping.model.table import Item
from migrator.stages.live.capture import CaptureStage
from migrator.stages.session import job as job_wiring
from migrator.stages.session.job import Live
from migrator.stages.session.session import JobSession
from tests.journeys.in_process import Ended, run_here
from tests.races.shop import MAPPING, TABLES
from tests.support_adapter import DRIVERS, service_url
from tests.support_fence import no_fence

JOB = """\
job: 1
name: shop
mapping: mapping.yaml
source: {{url: '{url}'}}
target: {{table: {table}, endpoint: '{endpoint}'}}
journal: 'sqlite:///{folder}/journal.db'
tuning: {{request_life_s: 1, silent_s: 60, attempts: 4, backoff_cap_s: 0.02, give_up_after_s: 3}}
"""


class Base(DeclarativeBase):
    pass


class User(Base):
    __tablename__ = "users"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    name: Mapped[str]
    email: Mapped[str | None]
    handle: Mapped[str | None]
    orders: Mapped[list[Order]] = relationship(
        back_populates="user", cascade="all, delete", passive_deletes=True
    )


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    user_id: Mapped[int] = mapped_column(sa.ForeignKey("users.id"))
    total: Mapped[int]
    user: Mapped[User] = relationship(back_populates="orders")


class Tag(Base):
    __tablename__ = "tags"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    order_id: Mapped[int] = mapped_column(sa.ForeignKey("orders.id"))
    label: Mapped[str]


@dataclass
class Shop:
    """One database, one table, one job, and an engine as a service has one."""

    engine_name: str
    folder: Path
    job: Path
    engine: sa.Engine
    table: str
    store: DynamoStore
    live: Live

    @property
    def sessions(self) -> sessionmaker[Any]:
        return sessionmaker(self.engine)

    def migration(self, **options: Any) -> Migration:
        return Migration.load(self.job, **{"service": "shop", **options})

    def command(self, *words: str) -> Ended:
        place = 2 if words[0] == "capture" else 1
        return run_here([*words[:place], str(self.job), *words[place:]], self.folder, dict(os.environ))

    def done(self, *words: str) -> str:
        ended = self.command(*words)
        assert ended.code == 0, ended.out + ended.err
        return ended.out

    def marks(self) -> int:
        state = self.live.marks.state()
        return state.waiting + state.unripe

    def ripen_marks(self) -> None:
        """Make every mark ready that waits for its transaction, as time would."""
        mark = "migrator.mark" if self.engine_name == "postgresql" else "migrator_mark"
        other = sa.create_engine(self.engine.url)  # without the listeners of a service
        with other.begin() as connection:
            connection.execute(sa.text(f"UPDATE {mark} SET ready_at = 0"))
        other.dispose()

    def items(self) -> dict[tuple[str, str], Item]:
        """The items that readers see."""
        hidden = self.store.design.is_hidden
        found = [item for page in self.store.scan(0, 1) for item in page.items]
        return {(str(one["PK"]), str(one["SK"])): one for one in found if not hidden(one)}

    def comes_to_rest(self) -> None:
        """What waits is worked, and items are what the rows say."""
        self.done("relay", "--once")
        ended = self.command("verify")
        assert ended.code == 0, ended.out + ended.err


@contextmanager
def open_shop(
    engine_name: str,
    url: str,
    endpoint: str,
    folder: Path,
    *,
    marked_by: str = "services",
    tables: Sequence[str] = TABLES,
) -> Iterator[Shop]:
    (folder / "mapping.yaml").write_text(MAPPING)
    table, job = f"Service{secrets.token_hex(4)}", folder / "shop.yaml"
    job.write_text(JOB.format(url=url, endpoint=endpoint, folder=folder, table=table))
    read = job_wiring.read_job(job)
    isolated = {} if engine_name == "sqlite" else {"isolation_level": "READ COMMITTED"}
    engine = sa.create_engine(service_url(engine_name, url, DRIVERS), **isolated)
    if engine_name == "sqlite":
        sa.event.listen(
            engine, "connect", lambda connection, _: connection.execute("PRAGMA foreign_keys = ON")
        )
    with engine.begin() as connection:
        for statement in tables:
            connection.execute(sa.text(statement))
    with JobSession(read, "test") as session, session.open_own_live("test") as live:
        stage = CaptureStage(live.capture, read.name, session.checked.mapping.table, marked_by)  # type: ignore[arg-type]
        stage.install([entity.plan for entity in session.checked.entities])
        session.revisions.register()
        client = dynamodb_client(region=None, profile=None, endpoint=endpoint)
        design = session.design
        DynamoTableAdmin(client).create(design)
        store = DynamoStore(client, design, no_fence, job_wiring.backoff_of(read))
        try:
            yield Shop(engine_name, folder, job, engine, table, store, live)
        finally:
            engine.dispose()
