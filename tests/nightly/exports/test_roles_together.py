"""Commands that take the rights of several roles: with those of all of them, and with one role less."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from tests.exports.shipped import on_server
from tests.journeys.command import Project
from tests.journeys.cutover import CUTOVER, OTHER, cutover_shop
from tests.nightly.exports import acting as in_aws
from tests.nightly.exports.test_grants import ENGINES, Server, made_direct, server_of, write_directly

pytestmark = pytest.mark.xdist_group("iam")
SLOW = CUTOVER.replace("quiet", "lag_max_s: 600, quiet")
"""A machine that stands still is no reverse that is behind."""


@dataclass(frozen=True)
class Work:
    """A command that several roles are needed for. `sql`: those in the source beside capture; `aws`: those on the table."""

    sql: Sequence[str]
    aws: Sequence[str]
    does: str


WORKS: Mapping[str, Work] = {
    "migrate-mapping": Work(
        ("backfill",),
        ("deploy", "backfill"),
        "-q migrate-mapping JOB --yes --settle 0",
    ),
    "recover": Work(
        ("relay",),
        ("relay", "verify"),
        "-q recover JOB source-restored --settle 0s",
    ),
    "the way back": Work(
        ("operator", "reverse"),
        ("operator", "reverse"),
        f"cutover rollback JOB {OTHER} --yes --settle 0s",
    ),
}


def prepared(made: Project, name: str, server: Server | None) -> None:
    """What others did before the command."""
    job = str(made.job)
    if name == "recover":
        if server is None:
            with sqlite3.connect(made.folder / "shop.db") as source:
                source.executescript(in_aws.CHANGES)
        return
    if name == "migrate-mapping":
        made.done("relay", job, "--once")
        mapping = made.folder / "mapping.yaml"
        text = (
            mapping.read_text()
            .replace("I#{id:06}", "I#{id:09}")
            .replace("indexes: {", "indexes: {More: {key: [MorePK]}, ")
        )
        if "More" not in text:
            text = text.replace("ttl: expiresAt", "ttl: expiresAt, indexes: {More: {key: [MorePK]}}")
        mapping.write_text(text.replace("keep: [total]", 'keep: [total], More: ["T#{total}"]', 1))
        return
    made_direct(made, server)
    if server is not None:
        write_directly(made)
    made.job.write_text(made.job.read_text().replace("writes: {direct: [invoice]}\n", ""))


def streaming(made: Project) -> None:
    text = made.job.read_text()
    made.job.write_text(text.replace("target: {", "target: {options: {stream: new_and_old_images}, ", 1))


@contextmanager
def acting_in_sql(
    folder: Path, endpoint: str, server: Server, name: str, roles: Sequence[str]
) -> Iterator[Project]:
    """A project of a user who installed capture by its role, and has these beside it."""
    made = on_server(cutover_shop(folder, endpoint, SLOW), server.url)
    streaming(made)
    job, words = str(made.job), ("--user", server.user)
    made.done("table", "create", job)
    if server.engine == "postgresql":
        owned = [f"ALTER TABLE {table} OWNER TO {server.user}_owner" for table in ("customer", "invoice")]
        server.run(*owned)

    def grant(role: str) -> None:
        text = made.done("export", "--as", "grants", job, "--role", role, *words).out
        server.run(*(line for line in text.splitlines() if line.startswith("GRANT ")))

    grant("capture")
    made.environment["MIGRATOR_SOURCE_URL"] = server.own_url
    made.done("capture", "install", job)
    made.environment["MIGRATOR_SOURCE_URL"] = server.url
    made.done("backfill", job)
    prepared(made, name, server)
    for role in roles:
        grant(role)
    made.environment["MIGRATOR_SOURCE_URL"] = server.own_url
    yield made


@pytest.mark.parametrize("engine", sorted(ENGINES))
@pytest.mark.parametrize("name", sorted(WORKS))
def test_rights_in_the_source(
    name: str, engine: str, request: pytest.FixtureRequest, tmp_path: Path, dynamodb_url: str
) -> None:
    work = WORKS[name]
    with (
        server_of(engine, request.getfixturevalue(ENGINES[engine])) as server,
        acting_in_sql(tmp_path, dynamodb_url, server, name, work.sql) as made,
    ):
        words = work.does.replace("JOB", str(made.job)).split()
        if engine == "mariadb" and "reverse" in work.sql:
            # On PostgreSQL who may install capture is a member of the tables' owner, and so may write them.
            place = f"`{make_url(server.url).database}`.invoice"
            server.run(f"REVOKE UPDATE ON {place} FROM '{server.user}'@'%'")
            assert made.run(*words).code in (2, 3)
            server.run(f"GRANT UPDATE ON {place} TO '{server.user}'@'%'")
        made.done(*words)


@pytest.mark.parametrize("name", ["migrate-mapping", "recover"])
def test_rights_on_the_table(
    name: str, tmp_path: Path, auth_dynamodb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the way back asks of the table the tests of its roles try."""
    work = WORKS[name]
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "test")
    with in_aws.acting(tmp_path, auth_dynamodb) as one:
        made = one.made
        streaming(made)
        with one.as_root():
            for words in (["table", "create"], ["capture", "install"], ["backfill"]):
                made.done(*words, str(made.job))
            prepared(made, name, None)
        words = work.does.replace("JOB", str(made.job)).split()
        for role in work.aws:
            one.may(role, policy=role)
        for role in work.aws:
            one.iam.delete_user_policy(UserName=one.user, PolicyName=role)
            assert made.run(*words).code in (2, 3), role
            one.may(role, policy=role)
        made.done(*words)
