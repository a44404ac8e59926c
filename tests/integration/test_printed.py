"""What commands print and leave behind: nothing of a row is obeyed by a terminal, and nothing is read by others."""

from __future__ import annotations

import os
import sqlite3
import stat
import unicodedata
from contextlib import closing
from pathlib import Path

import pytest

from tests import pins
from tests.journeys.command import Project, project
from tests.journeys.in_process import Ended

HOSTILE = "a\x1b]0;owned\x07\x1b[2J\u202etxt\u2066\x9b31m\x7f\r\nerror: fake\u2028\U000e0041é"
MAPPING = """\
mapping: 1
table: {name: Printed, key: [PK, SK], type: type, ttl: expiresAt}
entities:
  t: {items: {T: {key: ["T#{id}", M], keep: all}, N: {key: ["N#{name}", M], keep: [name]}}}
access_patterns:
  by_id:
    params: {id: text}
    query: {key: ["T#{id}", M]}
    returns: [id, name]
    sql: SELECT id, name FROM t WHERE id = :id
"""
SECRET = "Tr0ub4dor"


@pytest.fixture
def bare(tmp_path: Path, dynamodb_url: str) -> Project:
    """Without its table."""
    folder = tmp_path / "work"
    folder.mkdir()
    with closing(sqlite3.connect(folder / "t.db")) as connection:
        connection.execute("CREATE TABLE t (id TEXT PRIMARY KEY, name TEXT, n INTEGER)")
        connection.execute("INSERT INTO t VALUES ('1', ?, 1), (?, 'b', 2)", (HOSTILE, HOSTILE))
        connection.execute("INSERT INTO t VALUES (?, 'b', 3)", (HOSTILE + "2",))
        connection.commit()
    url = f"sqlite:///{folder}/t.db"
    return project(folder, url, dynamodb_url, f"P{os.urandom(6).hex()}", text=MAPPING)


@pytest.fixture
def made(bare: Project) -> Project:
    bare.done("table", "create", str(bare.job))
    return bare


def is_plain(ended: Ended) -> bool:
    unseen = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
    return not [one for one in ended.out + ended.err if unicodedata.category(one) in unseen and one != "\n"]


def test_no_terminal_obeys_a_row(made: Project) -> None:
    """Each command that shows rows or keys, of rows whose text would write, move, colour, hide and turn."""
    job = str(made.job)
    source = made.environment["MIGRATOR_SOURCE_URL"]
    told = [
        made.run("backfill", job, "--show-keys"),
        made.run("status", "--findings", job, "--show-keys"),
        made.run("verify", job, "--show-keys"),
        made.run("look", job, "--pattern", "by_id", "-p", "id=1", "--explain"),
        made.run("look", job, "--pattern", "by_id", "-p", f"id={HOSTILE}"),
        made.run("mapping", "try", "mapping.yaml", "--source", source, "--entity", "t", "--key", "1"),
        made.run("mapping", "try", "mapping.yaml", "--source", source, "--entity", HOSTILE, "--key", "1"),
        made.run("report", job),
        made.run("status", job),
        made.run("doctor", job),
        made.run(HOSTILE),
    ]
    assert [is_plain(one) for one in told] == [True] * len(told)
    assert "\nerror: fake" not in "".join(one.out for one in told)
    shown = told[3].out
    assert "\\u001b]0;owned\\u0007" in shown
    assert "\\u202etxt" in shown
    assert "é" in shown


def test_json_stays_json(made: Project) -> None:
    job = str(made.job)
    made.run("backfill", job)
    answered = made.run("look", job, "--pattern", "by_id", "-p", "id=1", "--json")
    assert is_plain(answered)
    assert HOSTILE in _texts(answered.data)
    found = made.run("status", "--findings", job, "--show-keys", "--json")
    assert is_plain(found)
    assert {one["kind"] for one in found.data["findings"]} == {"collision"}


def _texts(data: object) -> list[str]:
    if isinstance(data, dict):
        return [text for one in data.values() for text in _texts(one)]
    if isinstance(data, list):
        return [text for one in data for text in _texts(one)]
    return [data] if isinstance(data, str) else []


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


def test_files_with_keys_or_rows_are_readable_by_the_owner_only(made: Project) -> None:
    before = os.umask(0o022)
    try:
        made.run("backfill", str(made.job))
        made.run("report", str(made.job), "--out", "report.html")
    finally:
        os.umask(before)
    home = made.folder / ".migrator"
    assert mode(home) == "0o700"
    assert {mode(one) for one in home.iterdir() if one.is_file()} == {"0o600"}
    assert mode(made.folder / "report.html") == "0o600"


def test_a_journal_that_others_could_read_is_closed_to_them(made: Project) -> None:
    made.run("backfill", str(made.job))
    (journal,) = (made.folder / ".migrator").glob("*.db")
    journal.chmod(0o644)
    with closing(sqlite3.connect(journal)) as reader:
        # Its -wal and -shm exist as long as it is open.
        reader.execute("SELECT count(*) FROM migrator_run").fetchall()
        made.run("status", str(made.job))
        files = list((made.folder / ".migrator").glob("*.db*"))
        assert {mode(one) for one in files} == {"0o600"}
        assert len(files) == 3


@pytest.mark.parametrize(
    "line",
    [
        "target: {endpoint: 'http://user:%s@127.0.0.1:1'}",
        "journal: 'postgresql://user:pass@%s@127.0.0.1:1/db'",
        "journal: 'mysql://user:pass@%s@127.0.0.1:1/db'",
        "journal: 'postgresql://user:pass/@%s@127.0.0.1:1/db'",
        "journal: 'oracle://user:%s@127.0.0.1:1/db'",
        "journal: 'user:%s@127.0.0.1:1/db'",
        "source: {url: 'postgresql://user:pass@%s@127.0.0.1:1/db'}",
        "source: {url: 'postgresql://user:%s@127.0.0.1:1/db?connect_timeout=1'}",
    ],
    ids=[
        "endpoint-password",
        "holds-many",
        "holds-too-many",
        "holds-many-2",
        "journal-kept",
        "database",
        "holds-many-source",
        "case",
    ],
)
def test_no_message_holds_a_password(bare: Project, line: str) -> None:
    name = line.partition(":")[0]
    lines = [one for one in bare.job.read_text().splitlines() if not one.startswith(f"{name}:")]
    bare.job.write_text("\n".join([*lines, line % SECRET]))
    told = [bare.run(command, str(bare.job)) for command in ("status", "backfill", "doctor")]
    said = " ".join("".join(one.out + one.err for one in told).split())
    assert SECRET not in said
    assert pins.said(said)


def test_endpoint_of_the_environment_has_its_password_removed(bare: Project) -> None:
    bare.job.write_text(bare.job.read_text().replace(f", endpoint: '{bare.endpoint}'", ", region: eu-west-1"))
    bare.environment.update(
        AWS_ENDPOINT_URL_DYNAMODB=f"http://user:{SECRET}@127.0.0.1:1",
        AWS_ACCESS_KEY_ID="a",
        AWS_SECRET_ACCESS_KEY="b",
    )
    ended = bare.run("backfill", str(bare.job))
    assert ended.code == 2
    assert pins.said(ended.err)
    assert SECRET not in ended.out + ended.err


OTHERS = {
    "shadow": f"root:$6${SECRET}/abc:19000:0:99999:7:::\nbin:*:19000:0:99999:7:::\nann:!{SECRET}:1::::\n" * 5,
    "passwd": f"root:x:0:0:{SECRET}:/root:/bin/bash\n" * 9,
    "keys": f"db_password: {SECRET}\n{SECRET}: 1\nother {SECRET}: 2\nname: x\n",
    "twice": f"{SECRET}: 1\n{SECRET}: 2\n" * 9,
    "alias": f"a: *{SECRET}\n",
    "tag": f"a: !{SECRET} x\n",
    "anchor": f"a: &{SECRET} [\n",
    "quote": f"a: '{SECRET}\nb: {SECRET}",
    "env": f"export DB_PASSWORD={SECRET}\n",
    "ini": f"[client]\npassword={SECRET}\n",
    "list": f"- {SECRET}\n- {SECRET}: {SECRET}\n",
    "pem": f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n",
    "directive": f"%{SECRET} x\n---\n",
}


@pytest.mark.parametrize("kind", sorted(OTHERS))
def test_a_file_that_is_none_of_ours_is_not_printed(bare: Project, kind: str) -> None:
    """A symbolic link may lead anywhere that the command's user can read, in a pull request's check, too."""
    (bare.folder / "secret").write_text(OTHERS[kind])
    (bare.folder / "m.yaml").symlink_to("secret")
    for words in (
        ("mapping", "check", "m.yaml"),
        ("mapping", "check", "m.yaml", "--json"),
        ("backfill", "m.yaml"),
    ):
        ended = bare.run(*words)
        assert ended.code == 2
        assert SECRET not in ended.out + ended.err
        faults = ended.data if "--json" in words else (ended.out + ended.err).splitlines()
        assert len(faults) <= 3
    bare.job.write_text(bare.job.read_text().replace("mapping: mapping.yaml", "mapping: m.yaml"))
    ended = bare.run("backfill", str(bare.job))
    assert ended.code == 2
    assert SECRET not in ended.out + ended.err
    assert len((ended.out + ended.err).splitlines()) <= 3
