"""`journal: source`: our tables in the source's own database."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from migrator import wiring
from migrator.errors import SettingsError
from migrator.ports import RunIdentity
from migrator.settings import Job, load_job
from migrator.source.reader import SqlSource
from migrator.source.url import source_url

IDENTITY = RunIdentity("backfill", "shop", "table-1", "rev1")


def job(folder: Path, url: str) -> Job:
    path = folder / "shop.yaml"
    path.write_text("job: 1\nmapping: m.yaml\nsource: ${SHOP}\njournal: source\n")
    return load_job(path, {"SHOP": url})


@pytest.mark.parametrize("server", ["postgres_database", "mysql_database"])
def test_the_sources_database_keeps_the_journal(
    request: pytest.FixtureRequest, tmp_path: Path, server: str
) -> None:
    url = request.getfixturevalue(server)
    for _ in range(2):
        with wiring.open_journal(job(tmp_path, url)) as journal:
            journal.start_run(IDENTITY)
    source = SqlSource(source_url(url))
    assert len(source.query("SELECT * FROM migrator_run", {})) == 2
    # Our own tables are none of the source's.
    assert source.facts().tables == {}
    source.close()


def test_a_file_has_one_writer_so_it_keeps_no_journal_of_several(tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE users (id INTEGER PRIMARY KEY)"))
    engine.dispose()
    with (
        pytest.raises(SettingsError, match="journal: source needs a server"),
        wiring.open_journal(job(tmp_path, f"sqlite:///{tmp_path / 'shop.db'}")),
    ):
        pass
