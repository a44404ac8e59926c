"""The journal's tables of what is at work: claimed pages, processes, their shares, and what is asked of them."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)
from sqlalchemy.dialects import mysql

metadata = MetaData()

# ── pages and budgets of a run, shared by its processes ──

page_claim = Table(
    "migrator_page_claim",
    metadata,
    Column("run_id", Integer, primary_key=True, autoincrement=False),
    Column("entity", String(255), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("who", String(32), nullable=False),
    # NULL: the page was tried and left open; nobody claims it before the run is resumed.
    Column("leased_until", Double),
)

# What a page of a verify leaves for the run's other processes; gone with the end of the run.
page_part = Table(
    "migrator_page_part",
    metadata,
    Column("run_id", Integer, primary_key=True, autoincrement=False),
    Column("entity", String(255), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("part", Integer, primary_key=True, autoincrement=False),
    Column("data", LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb"), nullable=False),
)

# A process of a run and its part of the run's budgets.
share = Table(
    "migrator_share",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("job", String(64), nullable=False, index=True),
    Column("scope", String(64), nullable=False),
    Column("holder", Text, nullable=False),
    Column("alive_at", Double, nullable=False),
    # It takes one part of so many, since then; 0 of them: it takes nothing yet.
    Column("parts", Integer, nullable=False),
    Column("since", Double, nullable=False),
    # Connections to the source at once; 0: as many as it likes.
    Column("connections", Integer, nullable=False),
    # Not NULL: it has ended, and what it spent in its last seconds counts until it is out of the window.
    Column("left_at", Double),
)

# ── operations: who is at work, what failed, what was asked ──

process = Table(
    "migrator_process",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("job", String(64), nullable=False, index=True),
    Column("kind", String(16), nullable=False),
    Column("host", String(255), nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("version", String(64), nullable=False),
    Column("sees", String(255), nullable=False),
    Column("born", String(64), nullable=False),
    Column("since", Double, nullable=False),
    Column("alive_at", Double, nullable=False),
    Column("done", BigInteger, nullable=False),
    Column("left", BigInteger, nullable=False),
    Column("rate", Double, nullable=False),
    Column("fall", Double, nullable=False),
    Column("silent_s", Double, nullable=False),
    Column("held", Text, nullable=False),
    Column("trouble", Text, nullable=False),
)

failure = Table(
    "migrator_failure",
    metadata,
    Column("job", String(64), primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("host", String(255), nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("at", Double, nullable=False),
    Column("reason", Text, nullable=False),
)

throttle = Table(
    "migrator_throttle",
    metadata,
    Column("job", String(64), primary_key=True),
    Column("paused", Integer, nullable=False),
    Column("max_write_units", BigInteger),
    Column("who", String(255), nullable=False),
    Column("since", Double, nullable=False),
    Column("reason", Text, nullable=False),
)


# What each process had done at its last heartbeat of each minute, for the report's curves.
progress = Table(
    "migrator_progress",
    metadata,
    Column("job", String(64), primary_key=True),
    Column("process", String(32), primary_key=True),
    Column("begun_at", BigInteger, primary_key=True, autoincrement=False),
    Column("items", BigInteger, nullable=False),
    Column("write_units", Double, nullable=False),
    Column("lag_s", Double, nullable=False),
)

# ── a mapping that changes on the way ──

# The text of each revision that was ever the newest, so that what it made of a row is known when the next one is.
revision_text = Table(
    "migrator_revision_text",
    metadata,
    Column("job", String(64), primary_key=True),
    Column("mapping", String(64), primary_key=True),
    Column("text", Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb"), nullable=False),
    # When it became the newest last.
    Column("since", Double, nullable=False),
)

# A job's way from one revision to another, step by step.
revision_change = Table(
    "migrator_revision_change",
    metadata,
    Column("job", String(64), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("before", String(64), nullable=False),
    Column("after", String(64), nullable=False),
    Column("goes_back", Integer, nullable=False),
    # The step that is to be done next; '' where all are done.
    Column("step", String(16), nullable=False),
    Column("since", Double, nullable=False),
)


# ── streams of DynamoDB tables that a job reads ──

# The stream that was begun with, and when it was last asked for its shards.
stream = Table(
    "migrator_stream",
    metadata,
    Column("job", String(64), primary_key=True),
    Column("table_name", String(255), primary_key=True),
    Column("arn", String(400), nullable=False),
    Column("listed_at", Double, nullable=False),
)

# A process, or one of its threads, that reads the stream: each is due an equal part of its shards.
stream_reader = Table(
    "migrator_stream_reader",
    metadata,
    Column("owner", String(64), primary_key=True),
    Column("job", String(64), nullable=False, index=True),
    Column("arn", String(400), nullable=False),
    Column("alive_until", Double, nullable=False),
)

stream_shard = Table(
    "migrator_stream_shard",
    metadata,
    Column("job", String(64), primary_key=True),
    Column("arn", String(400), primary_key=True),
    Column("shard", String(80), primary_key=True),
    # '' for none.
    Column("parent", String(80), nullable=False),
    # Of the last record up to which all are worked, '' for none yet; and the time up to which all are.
    Column("sequence", String(64), nullable=False),
    Column("passed_at", Double, nullable=False),
    Column("is_finished", Integer, nullable=False),
    Column("owner", String(64), nullable=False),
    Column("leased_until", Double, nullable=False),
)

# ── live change of a source that is DynamoDB tables ──

# The counter of tickets, and the installation of capture; one row for each job.
source_capture = Table(
    "migrator_source_capture",
    metadata,
    Column("job", String(64), primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("number", BigInteger, nullable=False),
    # '' where capture was taken away: the counter stays.
    Column("installation", String(32), nullable=False),
    Column("version", Integer, nullable=False),
)

# A record of a stream that is to be worked, or a row that is to be looked at.
source_mark = Table(
    "migrator_source_mark",
    metadata,
    # An INTEGER on SQLite, which alone counts by itself there.
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("job", String(64), nullable=False, index=True),
    # '' where a root is named.
    Column("table_name", String(255), nullable=False),
    Column("image_before", Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")),
    Column("image_after", Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")),
    Column("root_entity", String(255)),
    Column("root_key", Text),
    Column("item_keys", Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb"), nullable=False),
    Column("work_cursor", Text, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("ready_at", Double, nullable=False),
    Column("leased_until", Double, nullable=False),
    Column("changed_at", Double, nullable=False),
    # An id that was worked must never name another mark.
    sqlite_autoincrement=True,
)

# ── the way back from items to rows ──

# The items that hold a row, or held it.
reverse_key = Table(
    "migrator_reverse_key",
    metadata,
    Column("job", String(64), primary_key=True),
    # Digests of the table's name and the row, and of the item's key.
    Column("row_digest", LargeBinary(16).with_variant(mysql.BINARY(16), "mysql"), primary_key=True),
    Column(
        "item_digest", LargeBinary(16).with_variant(mysql.BINARY(16), "mysql"), primary_key=True, index=True
    ),
    Column("source_table", String(255), nullable=False),
    Column("source_key", Text, nullable=False),
    Column("item_key", Text, nullable=False),
)

# Rows that are looked at again.
reverse_row = Table(
    "migrator_reverse_row",
    metadata,
    Column("job", String(64), primary_key=True),
    Column("row_digest", LargeBinary(16).with_variant(mysql.BINARY(16), "mysql"), primary_key=True),
    Column("source_table", String(255), nullable=False),
    Column("source_key", Text, nullable=False),
    Column("waits", String(16), nullable=False),
    Column("due_at", Double, nullable=False),
    Column("why", Text, nullable=False),
    Column("looks", Integer, nullable=False),
    Column("tries", Integer, nullable=False),
)

# When all processes of the way back were last asked to end.
reverse_stop = Table(
    "migrator_reverse_stop",
    metadata,
    Column("job", String(64), primary_key=True),
    Column("at", Double, nullable=False),
)
