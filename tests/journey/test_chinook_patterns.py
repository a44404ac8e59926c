"""Chinook's 14 access patterns: the golden rows of their SQL beside what their keys return."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from migrator.model import Item
from tests.journey.command import Project, project

_PATTERN = re.compile(r"^\d+\. \*\*(\w+)\*\*.*?SQL: `(.*?)`.*?Golden: (.*?)$", re.MULTILINE | re.DOTALL)
_GOLDEN = re.compile(r"([^>;]+?) -> (\d+) rows(?: / (\d+) items)? \((\w{12})\)")

Condition = tuple[str, str, str, tuple[str, ...]]
"""(index, partition key, condition on the sort key, its values), as the README's key lines say."""

KEYS: dict[str, Condition] = {
    "GetArtistWithAlbums": ("", "ARTIST#{artist_id}", "", ()),
    "GetAlbumWithTracks": ("GSI1", "ALBUM#{album_id}", "", ()),
    "GetTrack": ("", "TRACK#{track_id}", "#s = :a", ("META",)),
    "ListTracksByGenre": ("GSI2", "GENRE#{genre_id}", "", ()),
    "ListPlaylistTracks": ("", "PLAYLIST#{playlist_id}", "begins_with(#s, :a)", ("TRACK#",)),
    "ListPlaylistsOfTrack": ("GSI1", "TRACK#{track_id}", "begins_with(#s, :a)", ("PLAYLIST#",)),
    "GetCustomer": ("", "CUSTOMER#{customer_id}", "#s = :a", ("META",)),
    "GetCustomerByEmail": ("", "EMAIL#{email}", "#s = :a", ("EMAIL",)),
    "ListCustomersOfRep": ("GSI1", "REP#{employee_id}", "", ()),
    "ListInvoicesOfCustomer": (
        "GSI1",
        "CUSTOMER#{customer_id}",
        "#s BETWEEN :a AND :b",
        ("INVOICE#{from}", "INVOICE#{to}"),
    ),
    "GetInvoiceWithLines": ("", "INVOICE#{invoice_id}", "", ()),
    "ListInvoicesByMonth": ("GSI2", "MONTH#{from:.7}", "", ()),
    "ListDirectReports": ("GSI1", "MANAGER#{employee_id}", "", ()),
    "TopSellingTracks": ("GSI3", "BESTSELLER", "", ()),
}
DESCENDING = {"ListInvoicesOfCustomer", "TopSellingTracks"}
IN_ANY_ORDER = {"ListTracksByGenre", "ListCustomersOfRep"}
CHILDREN = {
    "GetArtistWithAlbums": ("Album", "album_id", 2),
    "GetAlbumWithTracks": ("Track", "track_id", 0),
    "GetInvoiceWithLines": ("InvoiceLine", "invoice_line_id", 3),
    "ListPlaylistsOfTrack": ("PlaylistTrack", "playlist_id", 0),
    "ListTracksByGenre": ("Track", "track_id", 0),
    "ListPlaylistTracks": ("PlaylistTrack", "track_id", 0),
    "ListCustomersOfRep": ("Customer", "customer_id", 0),
    "ListInvoicesOfCustomer": ("Invoice", "invoice_id", 0),
    "ListInvoicesByMonth": ("Invoice", "invoice_id", 0),
    "ListDirectReports": ("Employee", "employee_id", 0),
    "TopSellingTracks": ("Track", "track_id", 0),
    "GetTrack": ("Track", "track_id", 0),
    "GetCustomer": ("Customer", "customer_id", 0),
    "GetCustomerByEmail": ("CustomerEmail", "customer_id", 0),
}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, dynamodb_url: str, chinook_postgres: str) -> Project:
    made = project(
        tmp_path_factory.mktemp("patterns"), chinook_postgres, dynamodb_url, f"Chinook{secrets.token_hex(4)}"
    )
    made.done("table", "create", str(made.job))
    made.done("backfill", str(made.job))
    return made


def runs(readme: str) -> Iterator[tuple[str, str, dict[str, Any], int, int, str]]:
    """(pattern, SQL, parameters, rows, items, digest) of every golden run."""
    for name, sql, golden in _PATTERN.findall(readme):
        for text, rows, items, digest in _GOLDEN.findall(golden):
            params = dict(pair.strip().split("=", 1) for pair in text.split(","))
            typed = {key: int(value) if value.isdecimal() else value for key, value in params.items()}
            yield name, sql, typed, int(rows), int(items or rows), digest


def ask_sql(url: str, sql: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        return connection.execute(re.sub(r":(\w+)", r"%(\1)s", sql), params).fetchall()  # type: ignore[arg-type, call-overload, no-any-return]


def psql_digest(rows: list[tuple[Any, ...]]) -> str:
    """The first 12 digits over the lines that psql -At -F'|' would print."""
    lines = ["|".join("" if value is None else str(value) for value in row) for row in rows]
    return hashlib.md5("\n".join(lines).encode(), usedforsecurity=False).hexdigest()[:12]


def ask_keys(made: Project, name: str, params: dict[str, Any]) -> list[Item]:
    index, partition, condition, bounds = KEYS[name]
    names = {"#p": f"{index}PK"} | ({"#s": f"{index}SK"} if condition else {})
    values = {":p": partition.format(**params)}
    values |= dict(zip((":a", ":b"), (bound.format(**params) for bound in bounds), strict=False))
    request: dict[str, Any] = {
        "KeyConditionExpression": f"#p = :p AND {condition}" if condition else "#p = :p",
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
        "ScanIndexForward": name not in DESCENDING,
        "Limit": 500,
    }
    if index:
        request["IndexName"] = index
    items: list[Item] = []
    start = None
    while True:
        page = made.store().query(request, start)
        items += page.items
        start = page.next_start
        if start is None or len(items) >= params.get("n", 10**9):
            return items[: params.get("n")]


def test_every_golden_run(filled: Project, chinook_dir: Path, chinook_postgres: str) -> None:
    seen = list(runs((chinook_dir / "README.md").read_text(encoding="utf-8")))
    assert len(seen) == 42
    assert {run[0] for run in seen} == set(KEYS)
    for name, sql, params, rows, items, digest in seen:
        answer = ask_sql(chinook_postgres, sql, params)
        assert (len(answer), psql_digest(answer)) == (rows, digest), (name, params)
        found = ask_keys(filled, name, params)
        assert len(found) == items, (name, params)
        type_, attribute, column = CHILDREN[name]
        ours = [item[attribute] for item in found if item["entity"] == type_]
        theirs = [row[column] for row in answer if row[column] is not None]
        order = sorted if name in IN_ANY_ORDER else list
        assert order(ours) == order(theirs), (name, params)  # type: ignore[operator]
