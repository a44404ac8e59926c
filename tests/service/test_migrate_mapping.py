"""Five revisions of Chinook's mapping, one after the other, while services of the older and of the newer one write, and with
kills; and what each takes."""

from __future__ import annotations

import os
import random
import re
import secrets
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from migrator.mapping.model.table import Item
from migrator.runtime.values import replace
from tests import support_mysql
from tests import support_services as services
from tests.faults.proxy import FaultProxy, Faults
from tests.journeys.command import ROOT, RUNS, STOPPED, Project, chinook_mapping, digest, keys
from tests.service.chinook import Service
from tests.support_waiting import until

JOB = """\
job: 1
name: chinook
mapping: mapping.yaml
source: {{url: '{url}'}}
target: {{table: {table}, endpoint: '${{CHINOOK_ENDPOINT}}'}}
journal: 'sqlite:///{folder}/journal.db'
tuning: {{request_life_s: 1, silent_s: 6, page_rows: {page_rows}, workers: 2, scan_segments: 2, backoff_cap_s: 0.1}}
"""
PAGE_ROWS = 100
INDEXES = ("", "GSI1", "GSI2", "GSI3", "GSI4")
LIMIT_S = 900
CONTROL, OF_SERVICES = 100, 400
"""Write units at most of what the table is told of tickets; and of rows that services write while they are changed."""

# ── the revisions ──

KEPT = "        keep: all\n      CustomerEmail:"
NAMED = '        attributes: {full_name: "{first_name} {last_name}"}\n'
LAST = "          support_rep_id: SupportRepId\n"
"""Of a customer, where the mapping names each attribute."""
INDEX = "    GSI3: {key: [GSI3PK, GSI3SK]}\n"
BY_MONTH = '        GSI2: ["MONTH#{invoice_date|month}", "{invoice_date|iso:s}#{invoice_id:06}"]\n'
BY_COUNTRY = '        GSI4: ["BILLED#{billing_country}", "{invoice_date|iso:s}#{invoice_id:06}"]\n'


def changed(*edits: tuple[str, str]) -> Callable[[str], str]:
    """The edits are in the names of PostgreSQL's script; parameters of patterns have these names with every engine."""

    def edited(text: str) -> str:
        for edit in edits:
            named = [edit, (_in_other_names(edit[0]), _in_other_names(edit[1]))]
            found = {before: after for before, after in named if before in text}
            assert found, edit
            for before, after in found.items():
                text = text.replace(before, after)
        return text

    return edited


def _in_other_names(text: str) -> str:
    return re.sub(r"(?<=\{)[a-z_]+(?=[}|]|:0)", lambda name: name[0].title().replace("_", ""), text)


def with_full_name(text: str) -> str:
    if KEPT in text:
        return text.replace(KEPT, KEPT.replace("\n", f"\n{NAMED}", 1))
    assert LAST in text
    return text.replace(LAST, f'{LAST}          full_name: "{{FirstName}} {{LastName}}"\n')


def without(*names: str) -> Callable[[str], str]:
    """Entities or access patterns are taken out."""

    def left(text: str) -> str:
        for name in names:
            text, number = re.subn(rf"^  {name}:\n(?:    .*\n)+", "", text, flags=re.MULTILINE)
            assert number == 1, name
        return text

    return left


WITH_TTL = changed(("  key: [PK, SK]\n", "  key: [PK, SK]\n  ttl: expiresAt\n"))
REVISIONS: Mapping[str, Callable[[str], str]] = {
    "an attribute comes": with_full_name,
    "a sort key is formed otherwise": changed(
        (
            'key: ["ARTIST#{artist_id}", "ALBUM#{album_id:06}"]',
            'key: ["ARTIST#{artist_id}", "ALBUM#{album_id:08}"]',
        )
    ),
    "an entity gets other keys": changed(
        ('key: ["CUSTOMER#{customer_id}", META]', 'key: ["CUST#{customer_id}", META]'),
        ('key: ["EMAIL#{email|lower}", EMAIL]', 'key: ["MAIL#{email|lower}", EMAIL]'),
    ),
    "an index comes": changed(
        (INDEX, f"{INDEX}    GSI4: {{key: [GSI4PK, GSI4SK]}}\n"), (BY_MONTH, BY_MONTH + BY_COUNTRY)
    ),
    "an entity goes": without("invoice_line", "get_invoice_with_lines"),
}
AT_REST, AT_LAST = "an index comes", "an entity goes"
"""While the first is made nothing else writes: it takes what was said before."""


# ── Chinook, a job of its own, and what works on it ──


@dataclass(frozen=True)
class Chinook:
    made: Project
    engine_name: str
    url: str

    @property
    def mapping(self) -> Path:
        return self.made.folder / "mapping.yaml"

    def service(self, stack: ExitStack, number: int) -> Service:
        service = Service(self.made.job, self.engine_name, self.url, number)
        stack.callback(service.end)
        return service

    def through(self, proxy: FaultProxy) -> Project:
        """Whose commands alone go by the proxy."""
        return replace(self.made, environment=self.made.environment | {"CHINOOK_ENDPOINT": proxy.url})

    def another(self) -> Chinook:
        """The same source and mapping for a table that is not there yet, with a journal of its own."""
        made, folder = self.made, self.made.folder / "fresh"
        folder.mkdir()
        (folder / "mapping.yaml").write_text(self.mapping.read_text())
        table, pages = f"{made.table}{folder.name}", f"page_rows: {PAGE_ROWS}"
        text = made.job.read_text().replace(made.table, table).replace(str(made.folder), str(folder))
        (folder / "chinook.yaml").write_text(text.replace(pages, "page_rows: 500"))
        fresh = replace(made, folder=folder, job=folder / "chinook.yaml", table=table)
        return replace(self, made=fresh)

    def planned(self) -> float:
        """Write units of the change that the mapping's file asks for."""
        ended = self.made.run("migrate-mapping", str(self.made.job), "--dry-run", "--json")
        return float(ended.data["units"])

    def comes_to_rest(self, service: Service) -> None:
        """While nothing else is written: every mark is worked, and the items are what the rows make."""
        with relay_kept_up(self.made):
            service.comes_to_rest()
        self.made.done_at_last("verify", str(self.made.job), "--settle", "0")

    def is_as_new(self) -> None:
        """The items are those that a fresh backfill makes."""
        fresh = self.another()
        for words in (["table", "create"], ["backfill"]):
            fresh.made.done_at_last(*words, str(fresh.made.job))
        items, expected = self.items(), fresh.items()
        for index in INDEXES:
            assert digest(keys(items, index)) == digest(keys(expected, index)), index
        assert by_key(items) == by_key(expected)

    def items(self) -> list[Item]:
        """As readers see them, without what is ours."""
        store = self.made.store()
        seen = (item for page in store.scan(0, 1) for item in page.items if not store.design.is_hidden(item))
        return [{name: value for name, value in item.items() if name[0] != "_"} for item in seen]


@pytest.fixture
def chinook(
    engine_name: str,
    url: str,
    chinook_dir: Path,
    dynamodb_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Chinook:
    if engine_name == "postgresql":
        services.run_script(url, services.chinook_postgres_script(chinook_dir))
    else:
        support_mysql.run_script(url, support_mysql.chinook_mysql_script(chinook_dir))
    monkeypatch.setenv("CHINOOK_ENDPOINT", dynamodb_url)
    table, job = f"Chinook{secrets.token_hex(4)}", tmp_path / "chinook.yaml"
    job.write_text(JOB.format(url=url, table=table, folder=tmp_path, page_rows=PAGE_ROWS))
    shipped = ROOT / "mappings" / f"{chinook_mapping(url)}.yaml"
    (tmp_path / "mapping.yaml").write_text(WITH_TTL(shipped.read_text()))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return Chinook(Project(tmp_path, job, table, dynamodb_url, environment), engine_name, url)


def by_key(items: Sequence[Item]) -> dict[tuple[str, str], Item]:
    return {(str(item["PK"]), str(item["SK"])): item for item in items}


@contextmanager
def relay_kept_up(made: Project) -> Iterator[None]:
    """A relay that a supervisor starts again whenever it ends, by the file as it is then."""
    ended = threading.Event()

    def supervise() -> None:
        while not ended.is_set():
            process = made.start("relay", str(made.job))
            while process.poll() is None and not ended.wait(0.2):
                pass
            process.terminate()
            process.communicate()

    thread = threading.Thread(target=supervise)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(60)


def spent(proxy: FaultProxy) -> float:
    """Write units of the table and of all indexes."""
    return sum(sum(one.units.values()) for one in proxy.spent)


def start(made: Project) -> subprocess.Popen[str]:
    return made.start("migrate-mapping", str(made.job), "--settle", "3", "--yes")


def killed(made: Project, proxy: FaultProxy, units: float) -> None:
    """The command, killed when it has taken so many write units."""
    process, ends_at = start(made), time.monotonic() + LIMIT_S
    while spent(proxy) < units:
        assert time.monotonic() < ends_at
        assert process.poll() in (None, STOPPED), process.communicate()
        if process.returncode == STOPPED:
            process = start(made)
        time.sleep(0.01)
    process.kill()
    process.communicate()


def finished(made: Project) -> str:
    """What it says at last."""
    for _ in range(RUNS):
        process = start(made)
        said, error = process.communicate(timeout=LIMIT_S)
        # Rows that the relay has not worked yet differ: the same command goes on.
        if process.returncode != STOPPED:
            break
    assert process.returncode == 0, said + error
    return said


# ── one change ──


@dataclass(frozen=True)
class Changed:
    """`service`: by the newer mapping. Write units: said before, taken, and that it may take at most."""

    service: Service
    planned: float
    took: float
    most: float


def changed_at_rest(chinook: Chinook, stack: ExitStack, old: Service, text: str) -> Changed:
    """While nothing else is written: it takes what was said before, and what the table is told of tickets."""
    made = chinook.made
    with FaultProxy(made.endpoint, Faults()) as proxy, old.at_work:
        with relay_kept_up(made):
            old.comes_to_rest()
        chinook.mapping.write_text(text)
        planned = chinook.planned()
        finished(chinook.through(proxy))
        assert spent(proxy) >= planned
    new = chinook.service(stack, old.number + 1)
    return Changed(new, planned, spent(proxy), planned + CONTROL)


def changed_under_load(
    chinook: Chinook, stack: ExitStack, old: Service, text: str, kill_at: float
) -> Changed:
    """While services of both revisions write, and a relay by each; killed when it has taken this part of what it takes."""
    written = old.written
    with FaultProxy(chinook.made.endpoint, Faults()) as proxy, relay_kept_up(chinook.made):
        chinook.mapping.write_text(text)
        planned = chinook.planned()
        killed(chinook.through(proxy), proxy, planned * kill_at)
        # By now its mapping is the newest; the service by the older one is still there.
        new = chinook.service(stack, old.number + 1)
        # The change is half done as long as its command is not given again.
        until(lambda: min(old.written - written, new.written) > 0, "services of both revisions write")
        finished(chinook.through(proxy))
    # Pages that were under way when it was killed are written twice.
    return Changed(new, planned, spent(proxy), 2 * planned + CONTROL + OF_SERVICES)


@pytest.mark.slow
@pytest.mark.engines("postgresql", pytest.param("mariadb", marks=pytest.mark.nightly))
def test_five_revisions_equal_a_fresh_backfill(chinook: Chinook) -> None:
    chance = random.Random(7)
    with FaultProxy(chinook.made.endpoint, Faults()) as proxy:
        for words in (["table", "create"], ["capture", "install"], ["backfill"]):
            chinook.through(proxy).done_at_last(*words, str(chinook.made.job))
    whole = spent(proxy)
    with ExitStack() as stack:
        old = chinook.service(stack, 0)
        for change, revised in REVISIONS.items():
            text = revised(chinook.mapping.read_text())
            if change == AT_REST:
                made = changed_at_rest(chinook, stack, old, text)
            else:
                made = changed_under_load(chinook, stack, old, text, chance.uniform(0.1, 0.6))
            assert made.took <= min(made.most, whole / 4), (change, made, whole)
            with old.at_work, made.service.at_work:
                chinook.comes_to_rest(made.service)
                if change == AT_LAST:
                    chinook.is_as_new()
            old.end()
            old = made.service
