"""A small shop with two access patterns, its changes captured; readers and what they compared are the test's own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from migrator.journal.runs import SqlJournal
from migrator.journal.writers import INSTANCES
from migrator.mapping.difference.difference import answer_digests
from migrator.mapping.model.evidence import OFF, Move, Side, State, Window
from migrator.mapping.model.instances import Instance
from migrator.runtime.values import replace
from migrator.settings import job as job_settings
from migrator.settings.transforms import sound_mapping
from migrator.stages.live.instances import this_process
from migrator.stages.session import job as job_wiring
from migrator.stages.session.session import JobSession
from tests.journeys.command import Project
from tests.journeys.small import small_shop
from tests.support_session import session_by
from tests.support_worlds import prepared
from tests.unit.stages.core.evidence_world import histogram

MAPPING = """\
mapping: 1
table: {name: Shop, key: [PK, SK], type: type, ttl: expiresAt}
entities:
  customer: {items: {Customer: {key: ["C#{id}", META], keep: [name]}}}
  invoice: {items: {Invoice: {key: ["C#{customer_id}", "I#{id:06}"], attributes: {id: id}, keep: [total]}}}
access_patterns:
  customer_by_id:
    params: {id: integer}
    get: {key: ["C#{id}", META]}
    returns: {customer: {type: Customer, one: true, attributes: [name]}}
    sql: {customer: "SELECT name FROM customer WHERE id = :id"}
  invoices_of_customer:
    params: {customer_id: integer}
    query: {key: ["C#{customer_id}", {begins_with: "I#"}]}
    returns: [id, total]
    order: exact
    sql: SELECT id, total FROM invoice WHERE customer_id = :customer_id ORDER BY id
"""
PATTERN, OTHER = "customer_by_id", "invoices_of_customer"
TUNING = "request_life_s: 0.5, silent_s: 10, lease_s: 1"
CUTOVER = "cutover: {comparisons_min: 100, mismatch_max: 0.03, error_max: 0.03, quiet: 0.5}\n"


def cutover_shop(folder: Path, endpoint: str, more: str = CUTOVER) -> Project:
    made = small_shop(folder, endpoint, create=False)
    made.job.write_text(made.job.read_text().replace("tuning: {}", f"tuning: {{{TUNING}}}") + "\n" + more)
    (folder / "mapping.yaml").write_text(MAPPING)
    made.environment["MIGRATOR_HOME"] = str(folder / ".migrator")
    return made


FILLED = ("table create", "capture install", "backfill", "verify")


def filled(made: Project) -> Project:
    """Its table made and filled, its changes captured, verified: a copy of one that an earlier test of this process filled."""
    return prepared(made, *FILLED)


@contextmanager
def desk_of(made: Project) -> Iterator[JobSession]:
    """The journal of the project, as another process of an operator has it."""
    with journal_of(made) as journal:
        yield session_by(journal, job_settings.load_job(made.job, made.environment))


@contextmanager
def journal_of(made: Project) -> Iterator[SqlJournal]:
    job = job_settings.load_job(made.job, made.environment)
    home = Path(made.environment["MIGRATOR_HOME"])
    url = job.journal or f"sqlite:///{home / f'{job.name}.db'}"
    with job_wiring.open_journal(replace(job, journal=url)) as journal:
        yield journal


def revision(made: Project) -> str:
    return sound_mapping(made.folder / "mapping.yaml").mapping.revision


def answer(made: Project, pattern: str) -> str:
    return answer_digests(sound_mapping(made.folder / "mapping.yaml").mapping, ())[pattern]


def reader(session: JobSession, made: Project, service: str = "shop-api") -> Instance:
    """A reader that is registered, and says nothing of phases yet."""
    return session.instances.enter(this_process(service, "1", revision=revision(made)))


def obey(session: JobSession, one: Instance) -> None:
    """The reader lives, and acts by all phases as they are."""
    session.instances.beat(one)
    session.phases.confirm(one.id, {name: phase.version for name, phase in session.phases.all().items()})


def dead(shop: Project, silent_s: float = 60) -> Instance:
    """A reader that was killed: silent for longer than anything of it can last."""
    with desk_of(shop) as session:
        one = reader(session, shop, "killed")
        old = replace(one, since=one.since - silent_s, alive_at=one.alive_at - silent_s)
        with session.journal.database.begin() as connection:
            INSTANCES.put(connection, session.instances.job, old, one.id)
    return one


def compared(session: JobSession, made: Project, pattern: str, count: int = 400, **more: Any) -> None:
    """A minute of comparisons that begins now. A real one begins at a full second, for which no test need wait."""
    begun_at: Any = session.evidence.now_s()
    latency: dict[Side, str] = {"table": histogram({8: count}), "sql": histogram({10: count})}
    one = Window(
        pattern,
        begun_at,
        "test",
        "shop-api",
        revision(made),
        "service",
        answered={"table": count, "sql": count},
        compared=count,
        same=count - more.get("different", 0),
        kinds={"": count},
        latency=latency,
        answer=answer(made, pattern),
    )
    session.evidence.keep([replace(one, **more)], [])


def phase(shop: Project, pattern: str = PATTERN) -> str:
    with desk_of(shop) as session:
        found = session.phases.all().get(pattern)
    return str(found.state) if found else "off"


def force(shop: Project, *words: str) -> None:
    shop.done("cutover", *words, "--override", "a test's own way")


def live(made: Project, patterns: Sequence[str] = (PATTERN, OTHER)) -> Project:
    """The same with every pattern moved to live."""
    steps = [OFF, State("shadow"), State("ramp", 100), State("live")]
    with desk_of(made) as session:
        for pattern in patterns:
            for version, (before, after) in enumerate(pairwise(steps)):
                session.phases.move(Move(pattern, before, after, "ada"), version)
    return made


def change(shop: Project, *statements: str) -> None:
    with closing(sqlite3.connect(shop.folder / "shop.db", timeout=120)) as service:
        for statement in statements:
            service.execute(statement)
        service.commit()


def marks(shop: Project) -> int:
    with closing(sqlite3.connect(shop.folder / "shop.db", timeout=120)) as service:
        return int(service.execute("SELECT COUNT(*) FROM migrator_mark").fetchone()[0])


def clean(shop: Project) -> bool:
    return bool(shop.done("verify", str(shop.job), "--settle", "0", "--json").data["clean"])
