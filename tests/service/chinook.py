"""Services of the music shop Chinook, on PostgreSQL or MariaDB: they change rows, and the keys of their items, until they end."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.automap import automap_base
from sqlalchemy.orm import Session, sessionmaker

from migrator.api import Migration
from migrator.runtime.errors import StoppedError
from tests.support_adapter import service_url
from tests.support_chinook import snake_case
from tests.support_waiting import until

TABLES = ("album", "track", "customer", "invoice", "invoice_line")
ALBUMS, CUSTOMERS, INVOICES, LINES, TRACKS = 347, 59, 412, 2240, 3503
FIRST_OF_OURS = 10_000
PAUSE_S, BEHIND = 0.2, 10
LONGEST_S = 5.0


def models_of(engine: sa.Engine) -> dict[str, Any]:
    """A class for each table by its name in snake case, with attributes in snake case, whatever the engine's script says."""
    base = automap_base()

    @sa.event.listens_for(base.metadata, "column_reflect")
    def _named(inspector: object, table: sa.Table, column: dict[str, Any]) -> None:
        column["key"] = snake_case(column["name"])

    named = {snake_case(name): name for name in sa.inspect(engine).get_table_names()}
    base.metadata.reflect(engine, only=[named[name] for name in TABLES])
    base.prepare(generate_relationship=lambda *_, **__: None)
    return {snake_case(name): model for name, model in base.classes.items()}


class Service:
    """Strict, by the mapping file as it is when it begins: one transaction after the other until it ends. Nothing is written
    while `at_work` is held."""

    def __init__(self, job: Path, engine_name: str, url: str, number: int) -> None:
        self.engine = sa.create_engine(service_url(engine_name, url), isolation_level="READ COMMITTED")
        self.table = "migrator.mark" if engine_name == "postgresql" else "migrator_mark"
        self.sessions, self.models = sessionmaker(self.engine), models_of(self.engine)
        self.chance, self.number = random.Random(number), number
        self.ended, self.at_work, self.written = threading.Event(), threading.Lock(), 0
        self.until = ExitStack()
        self.until.callback(self.engine.dispose)
        migration = self.until.enter_context(Migration.load(job, service="shop"))
        migration.dual_write(
            self.sessions, mode="strict", longest_transaction_s=LONGEST_S, longest_write_s=120
        )
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def end(self) -> None:
        self.ended.set()
        self.thread.join(120)
        assert not self.thread.is_alive()
        self.until.close()

    def _run(self) -> None:
        while not self.ended.wait(PAUSE_S):
            # On a machine of any speed relays can follow a service that looks at what they can take now.
            if self.marks(time.time()) > BEHIND:
                continue
            # A host that stands still for longer than `silent_s` stops any writer, rightly; nothing is committed then.
            with self.at_work, suppress(StoppedError):
                with self.sessions.begin() as session:
                    self.chance.choice(CHANGES)(self, session)
                self.written += 1

    def marks(self, ripe_at: float) -> int:
        """Pending marks that are ripe by then. A pre-mark is ripe only when its transaction can no longer last."""
        ripe = sa.text(f"SELECT COUNT(*) FROM {self.table} WHERE ready_at <= :at")
        with self.engine.connect() as connection:
            return int(connection.scalar(ripe, {"at": ripe_at}) or 0)

    def comes_to_rest(self) -> None:
        """Waits until no mark is left: the items of a transaction that was rolled back stay until its pre-mark is worked."""
        until(lambda: not self.marks(time.time() + LONGEST_S * 100), "every mark is worked", pause_s=PAUSE_S)

    def pick(self, highest: int) -> int:
        """A row of its own: two services that write one row at once are no matter of ours."""
        return self.chance.randrange(1 + self.number % 2, highest + 1, 2)

    def get(self, session: Session, name: str, number: int) -> Any:
        return session.get(self.models[name], number)

    # ── what it changes ──

    def renames(self, session: Session) -> None:
        """A track, whose name is in the items of its lines and of playlists."""
        self.get(session, "track", self.pick(TRACKS)).name = f"Track {self.chance.random()}"

    def titles(self, session: Session) -> None:
        """An album, whose title is in the items of its tracks."""
        self.get(session, "album", self.pick(ALBUMS)).title = f"Album {self.chance.random()}"

    def moves(self, session: Session) -> None:
        """An invoice, to another customer."""
        invoice = self.get(session, "invoice", self.pick(INVOICES))
        invoice.customer_id = self.chance.randint(1, CUSTOMERS)

    def writes_to(self, session: Session) -> None:
        """A customer, under another name and another address, which is a key."""
        customer = self.get(session, "customer", self.pick(CUSTOMERS))
        customer.last_name = f"Name {self.chance.randrange(99)}"
        customer.email = f"c{self.number}.{self.written}@example.com"

    def swaps(self, session: Session) -> None:
        """The addresses of two customers."""
        numbers = sorted({self.pick(CUSTOMERS), self.pick(CUSTOMERS)})
        if len(numbers) == 2:
            one, other = (self.get(session, "customer", number) for number in numbers)
            one.email, other.email = other.email, one.email

    def drops(self, session: Session) -> None:
        """A line of an invoice."""
        line = self.get(session, "invoice_line", self.pick(LINES))
        if line is not None:
            session.delete(line)

    def sells(self, session: Session) -> None:
        """An invoice with a line; or takes both back."""
        number = FIRST_OF_OURS + self.pick(20)
        line, invoice = (self.get(session, name, number) for name in ("invoice_line", "invoice"))
        if invoice is not None:
            session.delete(line)
            session.flush()
            session.delete(invoice)
            return
        sold = self.get(session, "invoice", self.pick(INVOICES))
        columns = {"invoice_date": sold.invoice_date, "total": 1, "billing_country": sold.billing_country}
        session.add(self.models["invoice"](invoice_id=number, customer_id=self.pick(CUSTOMERS), **columns))
        session.flush()
        of_line = {"track_id": self.pick(TRACKS), "unit_price": 1, "quantity": self.chance.randint(1, 9)}
        session.add(self.models["invoice_line"](invoice_line_id=number, invoice_id=number, **of_line))


CHANGES: Sequence[Callable[[Service, Session], None]] = (
    *(
        Service.renames,
        Service.titles,
        Service.moves,
        Service.writes_to,
        Service.swaps,
        Service.drops,
        Service.sells,
    ),
)
