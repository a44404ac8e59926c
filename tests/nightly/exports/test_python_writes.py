"""Generated Python on Chinook and on a hostile schema: all golden answers, writes beside SQL, writers that meet, odd names."""

from __future__ import annotations

import datetime as dt
import os
import secrets
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from migrator.features.exports.model import model_of
from migrator.features.exports.python.module import python_module
from migrator.mapping.patterns.params import checked_params, read_params
from migrator.runtime.values import replace
from migrator.settings.job import SourceSettings
from migrator.settings.transforms import checked_on, read_mapping
from migrator.stages.session.source import open_source
from tests import pins
from tests.designs.golden import script_of
from tests.exports.generated import Generated, asked, generated, table_of
from tests.exports.shipped import MAPPINGS, ROOT, Shipped
from tests.journeys.in_process import Ended
from tests.support_chinook import golden_runs
from tools.pages.golden import NAMES

pytestmark = pytest.mark.xdist_group("generated python")


def _filled(folder: Path, mapping: Path, source: Path, endpoint: str) -> Shipped:
    """A job whose table holds all items of the source."""
    table = f"Python_{secrets.token_hex(4)}"
    (folder / "job.yaml").write_text(
        f"job: 1\nmapping: {mapping}\nsource: {{url: 'sqlite:///{source}'}}\n"
        f"target: {{table: {table}, endpoint: '{endpoint}'}}\nreads: {{cursor_key: a key of the tests alone}}\n"
    )
    job = Shipped(folder, table)
    for words in (("table", "create"), ("backfill",)):
        _done(job, "-q", *words, "job.yaml")
    return job


def _done(job: Shipped, *words: str) -> Ended:
    ended = job.run(*words)
    assert ended.code == 0, ended.err + ended.out
    return ended


def _clean(job: Shipped) -> None:
    assert _done(job, "-q", "verify", "job.yaml", "--json").data["clean"]


# ── Chinook ──


@pytest.fixture(scope="module")
def chinook(
    chinook_dir: Path, tmp_path_factory: pytest.TempPathFactory, dynamodb_url: str
) -> tuple[Shipped, Generated]:
    folder = tmp_path_factory.mktemp("chinook_python")
    shutil.copyfile(chinook_dir / "Chinook_Sqlite.sqlite", folder / "shop.db")
    job = _filled(folder, ROOT / "mappings" / "chinook.yaml", folder / "shop.db", dynamodb_url)
    return job, generated(job, dynamodb_url)


def test_all_golden_answers_of_chinook_come_from_both_modules(
    chinook: tuple[Shipped, Generated], chinook_dir: Path
) -> None:
    _, made = chinook
    patterns = read_mapping(ROOT / "mappings" / "chinook.yaml").mapping.patterns
    runs = list(golden_runs((chinook_dir / "README.md").read_text(encoding="utf-8")))
    assert len(runs) == 42
    with made.opened(after=False) as through, made.opened(after=True) as after:
        for run in runs:
            pattern = patterns[run.pattern]
            values = checked_params(pattern, read_params(pattern, run.params))
            answers = [
                asked(table, pattern, values, at_once=at_once)
                for table in (through, after)
                for at_once in (True, False)
            ]
            if pattern.order == "any":
                answers = [{name: sorted(rows, key=repr) for name, rows in one.items()} for one in answers]
            # Off, migrator answers from SQL.
            assert all(one == answers[0] for one in answers), run.pattern
            assert sum(map(len, answers[0].values())) == run.items, (run.pattern, run.params)


def test_items_written_by_a_service_equal_those_of_the_rows(chinook: tuple[Shipped, Generated]) -> None:
    job, made = chinook
    with (
        made.opened(after=True, trace=True) as table,
        closing(sqlite3.connect(job.folder / "shop.db")) as sql,
    ):
        ann = table.read_customer(CustomerId=1)
        assert ann is not None
        moved = replace(ann, Email="Ann@Example.com", Company=None, Country="Norway")
        assert table.change_customer(ann, moved) == moved
        gone = table.read_invoice_line(InvoiceId=1, InvoiceLineId=1)
        assert gone.UnitPrice == Decimal("0.99")
        table.delete_invoice_line(gone)
        # What SQL counted, the service counts: the track says how often it was sold.
        track = table.read_track(TrackId=gone.TrackId)
        table.change_track(track, replace(track, units_sold=track.units_sold - gone.Quantity))
        table.put_genre(made.after.GenreRow(GenreId=99, Name='Ro"ck\\ ♪'))
        _statements(
            sql,
            "UPDATE Customer SET Email = 'Ann@Example.com', Company = NULL, Country = 'Norway' WHERE CustomerId = 1",
            "DELETE FROM InvoiceLine WHERE InvoiceLineId = 1",
            "INSERT INTO Genre VALUES (99, 'Ro\"ck\\ ♪')",
        )
        assert table.get_customer_by_email(email="ann@example.com").customer_id == 1
    _clean(job)


def _statements(sql: sqlite3.Connection, *statements: str) -> None:
    for statement in statements:
        sql.execute(statement)
    sql.commit()


def test_of_writers_that_change_one_row_at_once_one_wins(chinook: tuple[Shipped, Generated]) -> None:
    _, made = chinook
    with made.opened(after=True) as table:
        before, together = table.read_artist(ArtistId=5), Barrier(4)

        def change(number: int) -> Any:
            together.wait()
            try:
                return table.change_artist(before, replace(before, Name=f"Name {number}"))
            except made.after.ConflictError as error:
                return error

        with ThreadPoolExecutor(4) as threads:
            ends = list(threads.map(change, range(4)))
        lost = [end for end in ends if isinstance(end, made.after.ConflictError)]
        assert {str(error) for error in lost} == {
            "change_artist: not as expected: Artist; read the row again"
        }
        assert [end for end in ends if end not in lost] == [table.read_artist(ArtistId=5)]
        table.change_artist(table.read_artist(ArtistId=5), before)
        with pytest.raises(made.after.ConflictError, match="put_artist"):
            table.put_artist(before)
        with pytest.raises(made.after.ConflictError, match="delete_artist"):
            table.delete_artist(replace(before, Name="Another"))


def test_a_cursor_is_of_one_question_and_cannot_be_forged(chinook: tuple[Shipped, Generated]) -> None:
    _, made = chinook
    with made.opened(after=True) as table:
        page = table.list_tracks_by_genre_page(genre_id=1, size=3)
        assert len(page.items) == 3
        refused = made.after.RefusedError
        with pins.refused(refused, "question"):
            table.list_tracks_by_genre_page(genre_id=2, cursor=page.next)
        for forged in (page.next[:-8] + "AAAAAAA=", "x", "é"):
            with pins.refused(refused, "forged"):
                table.list_tracks_by_genre_page(genre_id=1, cursor=forged)
        with pins.refused(refused, "size"):
            table.list_tracks_by_genre_page(genre_id=1, size=0)


# ── a hostile schema ──

_SCHEMA = """
CREATE TABLE odd (
  "class" INTEGER NOT NULL PRIMARY KEY, "self" TEXT, "1st" TEXT, "größe" NUMERIC(10, 3), "a b" TEXT, "a-b" TEXT, "_x" TEXT,
  "items" TEXT, "str" TEXT, "date" DATE, "when" TIMESTAMP, picture BLOB, document JSON, owner TEXT NOT NULL,
  lock_version INTEGER NOT NULL
);
INSERT INTO odd VALUES
  (1, 'me', 'first', 1.250, 'ab', 'a-b', 'x', 'many', 's', '2026-02-28', '2026-06-10 14:32:00.125', x'00ff',
   '{"a": [1, 2.50, null, {"b": true}], "ü": "y"}', 'ann', 7),
  (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'bob', 1);
CREATE TABLE note (id INTEGER NOT NULL PRIMARY KEY, title TEXT, body JSON);
INSERT INTO note VALUES (1, 'a', 'null'), (2, 'b', NULL), (3, 'c', '[1]');
"""
_SCHEMA += f"CREATE TABLE wide (id INTEGER PRIMARY KEY, {', '.join(f'c{n} TEXT' for n in range(200))});"
_MAPPING = r"""
mapping: 1
table: {name: Odd, key: [PK, SK], type: type, indexes: {GSI1: {key: [GSI1PK, GSI1SK]}}}
entities:
  odd:
    version: {attribute: version, from: lock_version}
    items:
      class:
        key: ["O'D\"D\\n{{x}}\n#{class}", "\t{{}}%{1st|or:'n''a'}"]
        GSI1: ["OWNER#{owner|escape}", "{größe:09.3f|desc|or:''}#{class:06}"]
        keep: {except: [lock_version]}
        attributes: {"with \"quotes\"\n": owner, map: {map: {def: class, None: {const: "'\"\\"}}}}
      Second item: {key: ["SECOND#{class}", "{when|iso:ms|or:''}"], when: {owner: [ann, "'quoted'"]}, keep: [self]}
  note: {items: {Note: {key: ["NOTE#{id}", META], keep: all}}}
  wide: {items: {Wide: {key: ["WIDE#{id}", META], keep: all}}}
access_patterns:
  class:
    params: {from: integer, self: optional text, class: optional integer}
    query: {index: GSI1, key: ["OWNER#{self|or:'ann'|escape}"], limit: class, filter: {class: {ge: from}}}
    returns: [class, self, "1st", "größe", "a b", a-b, when, document, picture, map]
    sql: >-
      SELECT "class", "self", "1st", "größe", "a b", "a-b", "when", document, picture, NULL FROM odd
      WHERE owner = COALESCE(:self, 'ann') AND "class" >= :from AND COALESCE(:class, 1) > 0
"""


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory, dynamodb_url: str) -> tuple[Shipped, Generated]:
    folder = tmp_path_factory.mktemp("odd_python")
    with closing(sqlite3.connect(folder / "odd.db")) as sql:
        sql.executescript(_SCHEMA)
    (folder / "odd.yaml").write_text(_MAPPING, encoding="utf-8")
    job = _filled(folder, folder / "odd.yaml", folder / "odd.db", dynamodb_url)
    return job, generated(job, dynamodb_url)


def test_odd_names_and_values_are_written_and_read(odd: tuple[Shipped, Generated]) -> None:
    job, made = odd
    with made.opened(after=True, trace=True) as table:
        (found,) = table.class_(from_=1)
        assert (found.class_, found.self_, found.n_1st, found.größe, found.a_b) == (
            1,
            "me",
            "first",
            Decimal("1.25"),
            "ab",
        )
        assert found.picture == b"\x00\xff"
        assert found.document == {"a": [1, Decimal("2.5"), None, {"b": True}], "ü": "y"}
        assert found.map == {"def": 1, "None": "'\"\\"}
        before = _first_row(made)
        after = table.change_odd(before, replace(before, größe=Decimal("12.5"), a_b=None))
        assert after.lock_version == 8
        with pytest.raises(made.after.ConflictError):
            table.change_odd(before, before)
        with pytest.raises(made.after.RefusedError, match="3 decimals"):
            table.change_odd(after, replace(after, größe=Decimal("1.2345")))
        with closing(sqlite3.connect(job.folder / "odd.db")) as sql:
            _statements(
                sql, 'UPDATE odd SET "größe" = 12.5, "a b" = NULL, lock_version = 8 WHERE "class" = 1'
            )
    _clean(job)


def test_a_row_with_the_document_null_is_changed(odd: tuple[Shipped, Generated]) -> None:
    job, made = odd
    with made.opened(after=True, trace=True) as table:
        for id_ in (1, 2):
            before = table.read_note(id=id_)
            table.change_note(before, replace(before, title="new"))
        before = table.read_note(id=3)
        with pytest.raises(made.after.ConflictError):
            table.change_note(replace(before, body=None), before)
    with closing(sqlite3.connect(job.folder / "odd.db")) as sql:
        _statements(sql, "UPDATE note SET title = 'new' WHERE id < 3")
    _clean(job)


def test_a_row_too_wide_for_a_condition_needs_a_version(odd: tuple[Shipped, Generated]) -> None:
    _, made = odd
    row = made.after.WideRow(id=1, c0="a")
    with made.opened(after=True) as table, pytest.raises(made.after.RefusedError, match="version:"):
        table.change_wide(row, replace(row, c0="b"))


def _first_row(made: Generated) -> Any:
    """The first row of the source, as a service that knows it has it."""
    return made.after.OddRow(
        class_=1,
        self_="me",
        n_1st="first",
        größe=Decimal("1.25"),
        a_b="ab",
        a_b_="a-b",
        x="x",
        items="many",
        str_="s",
        date=dt.date(2026, 2, 28),
        when=dt.datetime(2026, 6, 10, 14, 32, 0, 125_000),
        picture=b"\x00\xff",
        document={"a": [1, 2.5, None, {"b": True}], "ü": "y"},
        owner="ann",
        lock_version=7,
    )


# ── types ──


_SERVICE = """\
from decimal import Decimal

from {module} import {table} as Table


def greeting(shop: Table, customer_id: int) -> str:
    customer = shop.get_customer(customer_id=customer_id)
    return "" if customer is None else customer.first_name


async def total(shop: Table, invoice_id: int) -> Decimal:
    answer = await shop.get_invoice_with_lines_async(invoice_id=invoice_id)
    return sum((line.unit_price * line.quantity for line in answer.lines), Decimal(0))


def names(shop: Table) -> list[str]:
    return [track.name for track in shop.list_tracks_by_genre_page(genre_id=1, size=5).items]
"""


def test_every_generated_module_passes_mypy_strict_and_ruff(
    odd: tuple[Shipped, Generated], chinook: tuple[Shipped, Generated], tmp_path: Path
) -> None:
    """All shipped ones, and a service that changes one import."""
    folder = tmp_path / "modules"
    folder.mkdir()
    for name, (job, _) in (("odd", odd), ("chinook", chinook)):
        for module in (job.folder / "service").glob("*.py"):
            after = "_after" if module.stem.endswith("_after") else ""
            shutil.copyfile(module, folder / f"{name}{after}.py")
    for after in ("", "_after"):
        service = _SERVICE.format(module=f"chinook{after}", table=table_of(chinook[1].after).__name__)
        (folder / f"service{after}.py").write_text(service)
    for name, script in _scripts():
        with closing(sqlite3.connect(folder / f"{name}.db")) as sql:
            sql.executescript(script)
        parsed = read_mapping(next(path for path in MAPPINGS if path.stem == name))
        with open_source(SourceSettings(url=f"sqlite:///{folder / name}.db"), parsed) as source:
            checked = checked_on(source, parsed)
        model = model_of(checked.mapping, checked.read_plans, checked.mapping.table)
        for is_after, ending in ((False, ""), (True, "_after")):
            text = python_module(model, [], "job.yaml", after=is_after)[0]
            assert text == python_module(model, [], "job.yaml", after=is_after)[0]
            (folder / f"{name}{ending}.py").write_text(text, encoding="utf-8")
    for module in folder.glob("*.py"):
        module.write_text(module.read_text(encoding="utf-8").replace("# fmt: off\n\n", ""), encoding="utf-8")
    for words in (["check"], ["format", "--check", "--line-length=100"]):
        ruff = [sys.executable, "-m", "ruff", *words, "--no-cache", "--isolated", str(folder)]
        ended = subprocess.run(ruff, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache")]
    files = map(str, sorted(folder.glob("*.py")))
    found = subprocess.run(
        [*command, *files],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(folder)},
        check=False,
    )
    assert found.returncode == 0, found.stdout


def _scripts() -> Iterator[tuple[str, str]]:
    yield from ((name, script_of(name, "sqlite")) for name in NAMES)
    yield "ecommerce", (ROOT / "docker" / "shop" / "schema.sql").read_text(encoding="utf-8")
