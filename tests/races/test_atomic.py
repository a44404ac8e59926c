"""Items of one row that an atomic pattern reads together: all of them, or none of them, whatever happens in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from migrator.mapping.model.live import ConditionalStore, Outcome
from migrator.mapping.model.table import EncodedItem, Item
from migrator.stages.backfill.write import ConditionalPath
from tests import pins
from tests.faults.schedule import Faults
from tests.races.conftest import opened_shops
from tests.races.harness import Race
from tests.races.shop import TABLES, Shop
from tests.support_fence import page_of

# One worker makes its shops once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("atomic races")]

SIZES = (3, 99, 100, 101)
"""How many items a row makes, a table for each; the second half only where `rest` is set."""
HEAD = """\
mapping: 1
table: {name: Races, key: [PK, SK], type: type, ttl: expiresAt}
entities:
"""


def _entity(parts: int) -> str:
    """Where there are few, their keys change with the title."""
    title = "#{title}" if parts == 3 else ""
    lines = [f"  sheet{parts}:", f"    table: sheets{parts}", "    items:"]
    for n in range(1, parts + 1):
        rest = ", when: rest" if n > parts // 2 else ""
        key = f'["SHEET#{{id}}", "S{parts}#{n:03}{title}"]'
        lines.append(f"      S{parts}N{n}: {{key: {key}, keep: [title]{rest}}}")
    return "\n".join(lines) + "\n"


def _pattern(parts: int) -> str:
    return f"""\
  sheet{parts}:
    params: {{id: integer}}
    query: {{key: ["SHEET#{{id}}", {{begins_with: "S{parts}#"}}]}}
    returns: [title]
    atomic: true
    sql: SELECT title FROM sheets{parts} WHERE id = :id
"""


MAPPING = HEAD + "".join(map(_entity, SIZES)) + "access_patterns:\n" + "".join(map(_pattern, SIZES))
TABLES_OF_SHEETS = tuple(
    f"CREATE TABLE sheets{parts} (id INTEGER PRIMARY KEY, title VARCHAR(80) NOT NULL, rest VARCHAR(80))"
    for parts in SIZES
)


@pytest.fixture(scope="module")
def shops(
    request: pytest.FixtureRequest, dynamodb_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Shop]]:
    tables = (*TABLES, *TABLES_OF_SHEETS)
    with opened_shops(request, dynamodb_url, tmp_path_factory, MAPPING, tables) as opened:
        yield opened


def fill(race: Race, parts: int) -> None:
    """One row, with all its items in the table."""
    race.sql(*(f"DELETE FROM sheets{size}" for size in SIZES))
    race.sql(f"INSERT INTO sheets{parts} (id, title, rest) VALUES (1, 'a', 'r')")
    race.fill()


def change(race: Race, parts: int, title: str, *, rest: bool = True) -> None:
    emptied = "" if rest else ", rest = NULL"
    race.sql(f"UPDATE sheets{parts} SET title = '{title}'{emptied} WHERE id = 1")


def titles(race: Race) -> list[str]:
    return sorted(str(item["title"]) for item in race.live().values())


class CrashError(Exception):
    """The process is no more."""


@dataclass
class Looked:
    """A store whose every request is a reader's moment: the titles of all live items after it. `dies_after` so many."""

    store: ConditionalStore
    race: Race
    seen: list[list[str]] = field(default_factory=list)
    dies_after: int = -1
    sends_texts: bool = True

    def write(self, items: Sequence[EncodedItem], *, fresh: bool = False) -> list[Outcome]:
        return [outcome for item in items for outcome in self._sent(self.store.write([item], fresh=fresh))]

    def write_together(self, groups: Sequence[Sequence[EncodedItem]]) -> list[Outcome]:
        return [outcome for group in groups for outcome in self._sent(self.store.write_together([group]))]

    def remove_tombstones(self, tombstones: Sequence[Item]) -> int:
        return self.store.remove_tombstones(tombstones)

    def _sent(self, outcomes: list[Outcome]) -> list[Outcome]:
        self.seen.append(titles(self.race))
        if len(self.seen) == self.dies_after:
            raise CrashError
        return outcomes


def watched(race: Race, dies_after: int = -1) -> Looked:
    """A relay that works one take of marks, watched."""
    relay = race.relay(lease_s=0)
    relay.refresh.store = looked = Looked(race.beside.store, race, dies_after=dies_after)
    if dies_after < 0:
        relay.once()
    else:
        with pytest.raises(CrashError):
            relay.once()
    return looked


@pytest.mark.parametrize("parts", [3, 99, 100])
def test_a_row_of_up_to_100_items_is_written_in_one_request(race: Race, parts: int) -> None:
    fill(race, parts)
    change(race, parts, "b")
    assert watched(race).seen == [["b"] * parts]
    race.comes_to_rest()


@pytest.mark.parametrize("parts", [99, 100])
def test_row_that_shrinks_loses_its_other_items_in_one_request(race: Race, parts: int) -> None:
    fill(race, parts)
    change(race, parts, "b", rest=False)
    assert watched(race).seen == [["b"] * (parts // 2)]
    assert len(race.tombstones()) == parts - parts // 2
    race.comes_to_rest()


def test_items_that_move_are_tombstoned_and_put_in_one_request(race: Race) -> None:
    fill(race, 3)
    change(race, 3, "b")
    assert watched(race).seen == [["b"] * 3]
    assert {sort for _, sort in race.tombstones()} == {f"S3#{n:03}#a" for n in (1, 2, 3)}
    race.sql("DELETE FROM sheets3")
    assert watched(race).seen == [[]]
    race.comes_to_rest()


@pytest.mark.parametrize("rest", [True, False])
def test_a_row_of_101_is_written_item_by_item_and_is_a_finding(race: Race, *, rest: bool) -> None:
    fill(race, 101)
    change(race, 101, "b", rest=rest)
    (worked,) = race.work()
    (refreshed,) = worked.refreshed
    (finding,) = refreshed.apart
    assert (finding.kind, finding.entity, finding.source_key) == ("apart", "sheet101", "[1]")
    assert pins.said(finding.reason)
    assert titles(race) == ["b"] * (101 if rest else 50)
    race.comes_to_rest()


@pytest.mark.parametrize("after", [1, 40, 100])
def test_a_crash_after_some_of_101_items_converges(race: Race, after: int) -> None:
    fill(race, 101)
    change(race, 101, "b", rest=False)
    assert len(watched(race, dies_after=after).seen) == after
    assert len(race.mark_ids()) == 1
    race.comes_to_rest()
    assert titles(race) == ["b"] * 50


@pytest.mark.parametrize("cut", ["cut_before", "cut_after"])
def test_crash_around_a_transaction_leaves_all_or_nothing(race: Race, cut: str) -> None:
    fill(race, 100)
    change(race, 100, "b", rest=False)
    with race.through(Faults(**{cut: 1.0})) as (cut_off, _):  # type: ignore[arg-type]
        relay = cut_off.relay(lease_s=0)
        relay.refresh.control = race.beside.control  # it is the transaction that is cut off
        with pins.refused(Exception):
            relay.once()
    assert titles(race) == (["a"] * 100 if cut == "cut_before" else ["b"] * 50)
    assert len(race.mark_ids()) == 1
    race.comes_to_rest()


def test_a_page_with_other_writers_writes_a_row_whole(race: Race) -> None:
    fill(race, 100)
    change(race, 100, "b", rest=False)
    looked = Looked(race.beside.store, race)
    refresh, entity = race.beside.refresh(lambda: None), race.entity("sheet100")
    refresh.store = looked
    ConditionalPath(refresh, race.beside.open_findings, {}).copy(
        entity, *page_of(lambda: race.shop.opened.source.read_page(entity.plan, None, None))
    )
    assert looked.seen == [["b"] * 50]
    race.comes_to_rest()
