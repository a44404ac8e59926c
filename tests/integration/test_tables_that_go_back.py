"""The DynamoDB table restored to an older state: in its place, or as another one under the same name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from migrator.mapping.model.table import Item
from migrator.runtime.errors import SettingsError
from tests import pins
from tests.races.harness import Race
from tests.races.shop import Shop, open_shop
from tests.support_capture import new_sqlite
from tests.support_items import put_items

pytestmark = pytest.mark.slow

Restore = Callable[[Race, Sequence[Item]], None]
TWO = (
    "INSERT INTO users (id, name, email) VALUES (1, 'Ann', 'ann@x')",
    "INSERT INTO users (id, name) VALUES (2, 'Bob')",
)
OLDER = "--repair`, which makes it whole again"


@pytest.fixture(scope="module")
def shop(dynamodb_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("tables")
    with open_shop("sqlite", new_sqlite(folder / "shop.db"), dynamodb_url, folder) as made:
        yield made


@pytest.fixture
def race(shop: Shop) -> Iterator[Race]:
    """An empty, captured shop and an empty table."""
    shop.clear()
    target = shop.new_target()
    state = target.admin.state(target.design)
    assert state is not None
    yield Race(shop, target, state.table_id)
    target.store.client.delete_table(TableName=target.design.name)


def in_place(race: Race, items: Sequence[Item]) -> None:
    race.target.store.delete([race.target.design.key_of(item) for item in race.whole()])
    put_items(race.target.store, items)


def anew(race: Race, items: Sequence[Item]) -> None:
    """As PITR does: another table, which is given the name of the former one."""
    race.target.store.client.delete_table(TableName=race.target.design.name)
    race.target.admin.create(race.target.design)
    put_items(race.target.store, items)


def before_any_relay(race: Race, items: Sequence[Item]) -> None:
    anew(race, [item for item in items if item["PK"] != "_migrator"])


def changed(race: Race, restore: Restore) -> None:
    """Two rows and a key made of two of them; then the table goes back behind a change of each kind."""
    race.sql(*TWO, "INSERT INTO orders VALUES (1, 1, 5)", "INSERT INTO tags VALUES (1, 1, 'red')")
    assert race.command("relay", "--once").code == 0
    items = race.whole()
    race.sql("UPDATE users SET name = 'Ada', email = 'ada@x' WHERE id = 1", "DELETE FROM users WHERE id = 2")
    race.sql("UPDATE tags SET label = 'blue' WHERE id = 1")
    assert race.command("relay", "--once").code == 0
    restore(race, items)


def doctor(race: Race) -> str:
    """The state of the check that looks for a table that went back."""
    checks = race.command("doctor", "--json").data["checks"]
    (found,) = [check["state"] for check in checks if check["name"] == "table on record"]
    return str(found)


@pytest.mark.parametrize("restore", [in_place, anew, before_any_relay])
def test_no_writer_continues_until_it_is_repaired(race: Race, restore: Restore) -> None:
    changed(race, restore)
    race.sql("UPDATE users SET name = 'Eva' WHERE id = 1")
    before, marks = race.whole(), race.mark_ids()
    for words in (["relay", "--once"], ["backfill", "--into-existing"]):
        refused = race.command(*words)
        assert (refused.code, OLDER in refused.err) == (2, True), refused.err
    assert doctor(race) == "failed"
    assert (race.whole(), race.mark_ids()) == (before, marks)
    # Looking at it, or counting, is no repair.
    assert race.command("verify", "--settle", "0s").code == 1
    assert race.command("verify", "--repair", "--dry-run", "--settle", "0s").code == 1
    assert race.command("relay", "--once").code == 2
    assert race.command("verify", "--repair", "--settle", "0s").code == 1
    assert doctor(race) == "ok"
    assert race.command("relay", "--once").code == 0
    verified = race.command("verify", "--settle", "0s")
    assert verified.code == 0, verified.out
    assert race.item("USER#1")["name"] == "Eva"


@pytest.mark.parametrize("restore", [in_place, anew])
def test_keys_that_were_remembered_are_remembered_still(race: Race, restore: Restore) -> None:
    """A key that follows another row leaves nothing behind, though its own row never changed since the restore."""
    changed(race, restore)
    race.command("verify", "--repair", "--settle", "0s")
    assert race.command("relay", "--once").code == 0
    race.sql(*["INSERT INTO users (id, name) VALUES (3, 'Cy')", "UPDATE orders SET user_id = 3 WHERE id = 1"])
    assert race.command("relay", "--once").code == 0
    assert race.command("verify", "--settle", "0s").code == 0


def test_a_relay_that_runs_meanwhile_is_stopped(race: Race) -> None:
    race.sql(*TWO)
    assert race.command("relay", "--once").code == 0
    items = race.whole()
    race.sql("UPDATE users SET name = 'Ada' WHERE id = 1")
    race.beside.guard()
    race.work()
    race.beside.guard()
    in_place(race, items)
    with pins.refused(SettingsError):
        race.beside.guard()


def test_recreated_empty_table_is_a_new_one(race: Race) -> None:
    race.sql(*TWO)
    assert race.command("relay", "--once").code == 0
    anew(race, [])
    assert race.command("backfill").code == 0
    assert race.command("relay", "--once").code == 0
    assert race.command("verify", "--settle", "0s").code == 0
