"""Each role's commands with exactly the grants that `migrator export --as grants` gives it, and with each of them taken away."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from migrator.api import Migration
from migrator.mapping.model.evidence import OFF, Move, State
from migrator.runtime.errors import MigratorError
from migrator.settings.transforms import sound_mapping
from tests import pins
from tests.exports.shipped import on_server
from tests.journeys.command import Project
from tests.journeys.cutover import cutover_shop, desk_of
from tests.support_adapter import DRIVERS, service_url
from tests.support_mysql import connect

ENGINES = {"postgresql": "postgres_database", "mariadb": "mysql_database"}
SCRIPTS: Mapping[str, Sequence[str]] = {
    "capture": ("capture install JOB", "capture uninstall JOB"),
    "backfill": ("-q backfill JOB --restart",),
    "relay": ("-q relay JOB --once",),
    "verify": ("-q verify JOB --settle 0", "-q verify JOB --repair --settle 0"),
    "report": ("status JOB", "report JOB", "capture status JOB"),
    "reverse": (
        *("reverse check JOB", "-q reverse start JOB --once --settle 0s", "reverse status JOB"),
        *("-q reverse verify JOB --settle 0s --repair", "reverse stop JOB"),
    ),
    "operator": (
        "look JOB --pattern customer_by_id -p id=3",
        "look JOB --pk C#3",
        "-q shadow replay JOB --sample 3 --settle 0",
        "cutover status JOB",
        "cutover advance JOB customer_by_id --override tried",
        "cutover rollback JOB customer_by_id",
        "clean JOB --row --entity customer --key 2 --yes --force",
        "decommission check JOB",
    ),
}
"""The commands of a role."""


@dataclass
class Server:
    """A database on a server, and a user of it without rights yet."""

    engine: str
    url: str
    user: str = field(default_factory=lambda: f"g_{secrets.token_hex(4)}")

    def run(self, *statements: str) -> None:
        if self.engine == "postgresql":
            with psycopg.connect(self.url, autocommit=True) as server:
                for statement in statements:
                    server.execute(statement.encode())
            return
        server = connect(self.url)
        with server.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        server.close()

    @property
    def own_url(self) -> str:
        made = make_url(self.url).set(username=self.user)
        made = made if self.engine == "postgresql" else made.set(password="x")
        return made.render_as_string(hide_password=False)


@contextmanager
def server_of(engine: str, url: str) -> Iterator[Server]:
    made = Server(engine, url)
    if engine == "mariadb":
        made.run(f"CREATE USER '{made.user}'@'%' IDENTIFIED BY 'x'")
        before, after = [], [f"DROP USER '{made.user}'@'%'"]
    else:
        database = make_url(url).database
        before = [
            f"CREATE ROLE {made.user} LOGIN",
            f"CREATE ROLE {made.user}_owner",
            f'REVOKE ALL ON DATABASE "{database}" FROM PUBLIC',
            "REVOKE ALL ON SCHEMA public FROM PUBLIC",
        ]
        after = [
            "DROP SCHEMA IF EXISTS migrator CASCADE",
            f"DROP OWNED BY {made.user}, {made.user}_owner CASCADE",
            f"DROP ROLE {made.user}, {made.user}_owner",
        ]
    made.run(*before)
    try:
        yield made
    finally:
        made.run(*after)


@dataclass
class Acting:
    """A project whose commands read the source as a user of its own. `grants`: the statements, of one right each."""

    made: Project
    server: Server
    role: str
    grants: list[str]

    def run(self) -> str:
        """What the first command said that failed; '' where all went well."""
        if self.role == "reverse":
            write_directly(self.made)
            return self._run()
        if self.role != "backfill":
            return self._run()
        with relay_beside(self):
            return self._run()

    def _run(self) -> str:
        for line in SCRIPTS[self.role]:
            ended = self.made.run(*line.replace("JOB", str(self.made.job)).split())
            # Triggers that refuse SQL writers are made by whoever has capture's role, too; without it, that is said.
            said = [
                text
                for text in (ended.out + ended.err).splitlines()
                if self.role != "reverse" or "looking for capture" not in text
            ]
            if ended.code not in (0, 1) or "lacks " in "\n".join(said):
                return f"{line}: {ended.code}: {ended.out}{ended.err}"
            if line.startswith("reverse check") and "triggers of its own" not in ended.out:
                return f"{line}: no word of the trigger: {ended.out}"
        return ""

    def settle(self) -> None:
        """All is as before the first run: what half of a run left is undone."""
        # A relay that finds two marks of one parent goes on with none of them later.
        if self.role in ("capture", "relay"):
            assert self.run() == ""
        if self.role == "operator":
            with self.as_owner():
                assert self.made.run(
                    "-q", "verify", str(self.made.job), "--repair", "--settle", "0"
                ).code in (0, 1)

    @contextmanager
    def as_owner(self) -> Iterator[None]:
        own = self.made.environment["MIGRATOR_SOURCE_URL"]
        self.made.environment["MIGRATOR_SOURCE_URL"] = self.server.url
        yield
        self.made.environment["MIGRATOR_SOURCE_URL"] = own

    def told(self) -> list[str]:
        """What the doctor says that fails, on the side of the source."""
        ended = self.made.run("doctor", str(self.made.job), "--role", self.role, "--json")
        checks = [one for one in ended.data["checks"] if one["state"] == "failed"]
        return [f"{one['name']}: {one['what']} {one['mend']}" for one in checks]


def single(grants: Sequence[str]) -> list[str]:
    """The statements, cut into one right each."""
    found = []
    for line in grants:
        rights, on, rest = line.removesuffix(";").removeprefix("GRANT ").partition(" ON ")
        found += [f"GRANT {right}{on}{rest}" for right in rights.split(", ")]
    return found


def revoked(grant: str) -> str:
    begin, _, user = grant.rpartition(" TO ")
    return f"REVOKE {begin.removeprefix('GRANT ')} FROM {user}"


@contextmanager
def relay_beside(one: Acting) -> Iterator[None]:
    """A relay of another user beside a backfill, which so writes by condition."""
    job = str(one.made.job)
    with ExitStack() as stack:
        with one.as_owner():
            stack.enter_context(one.made.beside("relay", job))
        while "no relay is running" in one.made.done("status", job).out:
            time.sleep(0.1)
        yield


@contextmanager
def acting(folder: Path, endpoint: str, server: Server, role: str) -> Iterator[Acting]:
    made = on_server(cutover_shop(folder, endpoint), server.url)
    text = made.job.read_text()
    made.job.write_text(text.replace("target: {", "target: {options: {stream: new_and_old_images}, ", 1))
    mapping = made.folder / "mapping.yaml"
    text = mapping.read_text()
    for old, new in JOINED.items():
        text = text.replace(old, new)
    mapping.write_text(text)
    if role == "relay":
        server.run(*(f"INSERT INTO invoice VALUES ({100 + number}, 1, 5)" for number in range(MANY)))
    install = "capture install --by services" if role.startswith("service") else "capture install"
    for words in ("table create", install, "backfill") if role != "capture" else ("table create",):
        made.done(*words.split(), str(made.job))
    if role == "reverse":
        made_direct(made, server)
    if server.engine == "postgresql":
        server.run(
            *(f"ALTER TABLE {table} OWNER TO {server.user}_owner" for table in ("customer", "invoice"))
        )
    text = made.done("export", "--as", "grants", str(made.job), "--role", role, "--user", server.user).out
    one = Acting(made, server, role, [line for line in text.splitlines() if line.startswith("GRANT ")])
    server.run(*one.grants)
    made.environment["MIGRATOR_SOURCE_URL"] = server.own_url
    yield one


TRIGGERS = {
    "postgresql": (
        "CREATE FUNCTION same() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        "CREATE TRIGGER same BEFORE UPDATE ON invoice FOR EACH ROW EXECUTE FUNCTION same()",
        "ALTER TABLE invoice ALTER id ADD GENERATED BY DEFAULT AS IDENTITY",
        "CREATE TABLE note (id int PRIMARY KEY, invoice_id int REFERENCES invoice (id))",
    ),
    "mariadb": (
        "CREATE TRIGGER same BEFORE UPDATE ON invoice FOR EACH ROW SET NEW.total = NEW.total",
        "CREATE SEQUENCE numbers",
        "ALTER TABLE invoice ALTER id SET DEFAULT (nextval(numbers))",
        "CREATE TABLE note (id int PRIMARY KEY, invoice_id int, FOREIGN KEY (invoice_id) REFERENCES invoice (id))",
    ),
}
"""What reverse asks for: a trigger that may change a row, a sequence, a table that refers to what goes."""
UNSEEN = ".`note`"
"""Without a right on it MariaDB shows nobody that the table is there and refers to another one: nothing of ours can miss it,
and the server alone keeps the row that it refers to."""


def made_direct(made: Project, server: Server | None) -> None:
    """Invoices are the service's to write, and the stream is begun with."""
    if server is not None:
        server.run(*TRIGGERS[server.engine])
        if server.engine == "postgresql":
            # Whether a row that goes is referred to PostgreSQL asks as the table's owner.
            server.run(f"GRANT USAGE ON SCHEMA public TO {server.user}_owner")
    with desk_of(made) as session:
        for name in sound_mapping(made.folder / "mapping.yaml").mapping.patterns:
            session.phases.move(Move(name, OFF, State("complete"), "a test"), 0)
    made.done("verify", str(made.job))
    made.job.write_text(made.job.read_text() + "writes: {direct: [invoice]}\n")
    made.done("capture", "install", str(made.job))
    made.done("reverse", "start", str(made.job), "--once", "--settle", "0s")


def write_directly(made: Project) -> None:
    """A new invoice with the highest number of all, one that changes, and one that goes."""
    client, table = made.store().client, made.table
    items = {int(str(item["id"])): item for item in made.items() if item.get("type") == "Invoice"}
    numbers = sorted(items)
    gone, changed = items[numbers[0]], items[numbers[1]]
    for number, total in ((numbers[-1] + 1, 1), (numbers[1], numbers[-1])):
        key = changed if number == numbers[1] else {"PK": "C#1", "SK": f"I#{number:06}"}
        named = {name: {"S": str(key[name])} for name in ("PK", "SK")} | {"type": {"S": "Invoice"}}
        held = {"id": {"N": str(number)}, "total": {"N": str(total)}}
        client.put_item(TableName=table, Item=named | held)
    client.delete_item(TableName=table, Key={name: {"S": str(gone[name])} for name in ("PK", "SK")})


CHANGES = (
    "UPDATE customer SET name = 'Eve {0}' WHERE id = 1",
    "UPDATE invoice SET total = {0} WHERE id = 2",
)
JOINED = {
    "invoice: {": "invoice: {join: {buyer: {table: customer, on: {customer_id: id}}}, ",
    "{id: id}": "{id: id, buyer: buyer.name}",
}
"""A customer's change is one of its invoices, too."""
MANY = 210
"""Invoices of one customer: more than a relay does of one mark before it leaves another."""


@pytest.mark.parametrize("engine", sorted(ENGINES))
@pytest.mark.parametrize("role", sorted(SCRIPTS))
def test_a_role_needs_each_of_its_grants_and_no_other(
    role: str, engine: str, request: pytest.FixtureRequest, tmp_path: Path, dynamodb_url: str
) -> None:
    with (
        server_of(engine, request.getfixturevalue(ENGINES[engine])) as server,
        acting(tmp_path, dynamodb_url, server, role) as one,
    ):
        assert (one.run(), one.told()) == ("", [])
        wrong = []
        for number, grant in enumerate(single(one.grants)):
            one.settle()
            changes = () if role == "reverse" else CHANGES
            server.run(*(change.format(number) for change in changes), revoked(grant))
            failed, told = one.run(), one.told()
            server.run(*one.grants)
            if UNSEEN not in grant and not (failed and told):
                wrong.append(f"without {grant}: {failed or 'nothing failed'}; the doctor: {told}")
        assert wrong == []


def test_sqlite_has_no_grants(tmp_path: Path, dynamodb_url: str) -> None:
    made = cutover_shop(tmp_path, dynamodb_url)
    ended = made.run("export", "--as", "grants", str(made.job))
    assert (ended.code, pins.said(ended.err)) == (2, True)


def served(made: Project, server: Server, number: int, mode: Any) -> str:
    """A new row and two answers of a service, with the rights of its role; what it was refused, or ''."""
    url = service_url(server.engine, server.own_url, DRIVERS)
    own = sa.create_engine(url, isolation_level="READ COMMITTED")
    try:
        with Migration.load(made.job) as migration:
            migration.dual_write(own, mode=mode)
            with own.begin() as connection:
                new = {"id": 9100 + number, "name": "New"}
                connection.execute(sa.text("INSERT INTO customer (id, name) VALUES (:id, :name)"), new)
            for name, params in (("customer_by_id", {"id": 3}), ("invoices_of_customer", {"customer_id": 3})):
                migration.read(name, **params)
    except (MigratorError, sa.exc.DBAPIError) as error:
        return str(error)
    finally:
        own.dispose()
    return ""


@pytest.mark.parametrize("engine", sorted(ENGINES))
@pytest.mark.parametrize(("role", "mode"), [("service-reading", "outbox"), ("service-strict", "strict")])
def test_a_service_runs_with_exactly_its_grants(
    role: str,
    mode: str,
    engine: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    dynamodb_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        server_of(engine, request.getfixturevalue(ENGINES[engine])) as server,
        acting(tmp_path, dynamodb_url, server, role) as one,
    ):
        for name, value in one.made.environment.items():
            monkeypatch.setenv(name, value)
        place = "public.customer" if engine == "postgresql" else "customer"
        server.run(f"GRANT INSERT ON {place} TO {server.user}")
        assert (served(one.made, server, 0, mode), one.told()) == ("", [])
        wrong = []
        for number, grant in enumerate(single(one.grants), 1):
            server.run(revoked(grant))
            failed, told = served(one.made, server, number, mode), one.told()
            server.run(*one.grants)
            if not failed or not told:
                wrong.append(f"without {grant}: {failed or 'nothing failed'}; the doctor: {told}")
        assert wrong == []
