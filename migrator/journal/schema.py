"""The journal's tables, as SQLAlchemy metadata of its present version."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects import mysql

from migrator.journal.schema_at_work import failure as failure
from migrator.journal.schema_at_work import metadata as metadata
from migrator.journal.schema_at_work import page_claim as page_claim
from migrator.journal.schema_at_work import page_part as page_part
from migrator.journal.schema_at_work import process as process
from migrator.journal.schema_at_work import progress as progress
from migrator.journal.schema_at_work import reverse_key as reverse_key
from migrator.journal.schema_at_work import reverse_row as reverse_row
from migrator.journal.schema_at_work import reverse_stop as reverse_stop
from migrator.journal.schema_at_work import revision_change as revision_change
from migrator.journal.schema_at_work import revision_text as revision_text
from migrator.journal.schema_at_work import share as share
from migrator.journal.schema_at_work import source_capture as source_capture
from migrator.journal.schema_at_work import source_mark as source_mark
from migrator.journal.schema_at_work import stream as stream
from migrator.journal.schema_at_work import stream_reader as stream_reader
from migrator.journal.schema_at_work import stream_shard as stream_shard
from migrator.journal.schema_at_work import throttle as throttle

VERSION = 1
"""Of the tables' form. A table that is missing is made when a journal is opened."""

# MySQL keeps no BLOB in a key, no more than 64 KB in a TEXT.
DIGEST = LargeBinary(16).with_variant(mysql.BINARY(16), "mysql")
LONG_TEXT = Text().with_variant(mysql.LONGTEXT(), "mysql")

meta = Table("migrator_meta", metadata, Column("version", Integer, primary_key=True))

run = Table(
    "migrator_run",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("kind", String(16), nullable=False),
    Column("job", String(64), nullable=False),
    Column("table_id", String(255), nullable=False),
    Column("revision", String(64), nullable=False),
    Column("scope", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("started_at", String(40), nullable=False),
    Column("ended_at", String(40)),
    sqlite_autoincrement=True,
)

plan = Table(
    "migrator_plan",
    metadata,
    Column("run_id", Integer, primary_key=True, autoincrement=False),
    Column("entity", String(255), primary_key=True),
)

page = Table(
    "migrator_page",
    metadata,
    Column("run_id", Integer, primary_key=True, autoincrement=False),
    Column("entity", String(255), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("after_key", Text),
    Column("upto_key", Text),
    Column("done_at", String(40)),
    Column("rows", BigInteger, nullable=False, default=0),
    Column("items", BigInteger, nullable=False, default=0),
    Column("refused", BigInteger, nullable=False, default=0),
    Column("expired", BigInteger, nullable=False, default=0),
    Column("bytes", BigInteger, nullable=False, default=0),
    Column("write_units", Double, nullable=False, default=0.0),
    Column("different", BigInteger, nullable=False, default=0),
)

finding = Table(
    "migrator_finding",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("run_id", Integer, nullable=False),
    Column("digest", DIGEST, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("entity", String(255), nullable=False),
    Column("reason", Text, nullable=False),
    Column("source_key", Text, nullable=False),
    Column("item_key", Text, nullable=False),
    Column("attribute", Text, nullable=False),
    Column("item_type", Text, nullable=False),
    Column("owner", Text, nullable=False),
    UniqueConstraint("run_id", "digest", name="migrator_finding_once"),
)
Index("migrator_finding_kind", finding.c.run_id, finding.c.kind)

segment = Table(
    "migrator_segment",
    metadata,
    Column("run_id", Integer, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("state", LONG_TEXT, nullable=False),
)

claimed_table = Table(
    "migrator_claimed_table",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("table_id", String(255), nullable=False, unique=True),
)

claim = Table(
    "migrator_claim",
    metadata,
    # A number for the table's id: there may be ten million claims, and an id is longer than digest and owner together.
    Column("table_number", Integer, primary_key=True, autoincrement=False),
    Column("digest", DIGEST, primary_key=True),
    Column("owner", Text, nullable=False),
    sqlite_with_rowid=False,
)

lease = Table(
    "migrator_lease",
    metadata,
    Column("job", String(64), primary_key=True),
    Column("holder", Text, nullable=False),
    Column("since", String(40), nullable=False),
    Column("expires_at", Double, nullable=False),
)

verified_look = Table(
    "migrator_verified_look",
    metadata,
    Column("run_id", Integer, primary_key=True, autoincrement=False),
    # As JSON: what the source counted of changes, written and read whole.
    Column("look", LONG_TEXT, nullable=False),
)

run_capture = Table(
    "migrator_run_capture",
    metadata,
    Column("run_id", Integer, primary_key=True, autoincrement=False),
    # The installation of capture that was there when the run began, '' for none.
    Column("installation", String(64), nullable=False),
)

# ── live change ──

remembered_root = Table(
    "migrator_remembered_root",
    metadata,
    Column("root", DIGEST, primary_key=True),
    Column("ticket", BigInteger, nullable=False),
)

remembered_key = Table(
    "migrator_remembered_key",
    metadata,
    Column("root", DIGEST, primary_key=True),
    Column("digest", DIGEST, primary_key=True),
    Column("item_key", Text, nullable=False),
)

key_request = Table(
    "migrator_contest",
    metadata,
    Column("digest", DIGEST, primary_key=True),
    Column("root", DIGEST, primary_key=True),
    Column("item_key", Text, nullable=False),
    Column("entity", String(255), nullable=False),
    Column("source_key", Text, nullable=False),
    # Of the reading that made it.
    Column("ticket", BigInteger, nullable=False),
)

open_finding = Table(
    "migrator_open_finding",
    metadata,
    Column("job", String(64), primary_key=True),
    # Of the table, the kind, the row, the item and the attribute: what is found again replaces what was found before.
    Column("digest", DIGEST, primary_key=True),
    Column("table_id", String(255), nullable=False),
    Column("root", DIGEST, nullable=False, index=True),
    Column("ticket", BigInteger, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("entity", String(255), nullable=False),
    Column("reason", Text, nullable=False),
    Column("source_key", Text, nullable=False),
    Column("item_key", Text, nullable=False),
    Column("attribute", Text, nullable=False),
    Column("item_type", Text, nullable=False),
    Column("owner", Text, nullable=False),
)

reached_ticket = Table(
    "migrator_reached_ticket",
    metadata,
    Column("table_id", String(255), primary_key=True),
    Column("ticket", BigInteger, nullable=False),
)

# Which journal this is, and what it has seen of tables' control items (see mapping/model/edges.py).

identity = Table(
    "migrator_identity",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("id", String(32), nullable=False),
)

seen_table = Table(
    "migrator_seen_table",
    metadata,
    Column("job", String(64), primary_key=True),
    Column("table_id", String(255), primary_key=True),
    Column("name", String(255), nullable=False),
    Column("ticket", BigInteger, nullable=False),
)

# Which job it is: the names of its table and of its source. Number 0 is what the journal was first used with, others were
# added on purpose.
job_name = Table(
    "migrator_job_name",
    metadata,
    Column("job", String(64), primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
)

fast_path = Table(
    "migrator_fast_path",
    metadata,
    Column("table_id", String(255), primary_key=True),
    Column("closed", Integer, nullable=False),
)

shared_table = Table("migrator_shared_table", metadata, Column("table_id", String(255), primary_key=True))

writer = Table(
    "migrator_writer",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("table_id", String(255), nullable=False, index=True),
    Column("kind", String(16), nullable=False),
    Column("since", Double, nullable=False),
    Column("alive_at", Double, nullable=False),
    Column("fenced", Integer, nullable=False),
)

# The revision that a job's writers work by. It is old where another one was registered after it.
revision = Table(
    "migrator_revision",
    metadata,
    Column("job", String(64), primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("mapping", String(64), nullable=False),
    Column("since", Double, nullable=False),
    Column("runs_before", BigInteger, nullable=False),
    # By table the columns that marks are made of, as JSON, or NULL.
    Column("marked", LONG_TEXT),
    # What its items are made of, as a digest, or NULL; another text of the mapping that means the same is no other revision.
    Column("meaning", String(64)),
)

known_revision = Table(
    "migrator_known_revision",
    metadata,
    Column("job", String(64), primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("meaning", String(64)),
)

# By pattern what its answer is made of by the newest revision, and since when: what was compared before says nothing of it.
answer = Table(
    "migrator_answer",
    metadata,
    Column("job", String(64), primary_key=True),
    Column("pattern", String(255), primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("since", Double, nullable=False),
)

writer_revision = Table(
    "migrator_writer_revision",
    metadata,
    Column("writer", String(32), primary_key=True),
    Column("job", String(64), nullable=False, index=True),
    Column("digest", String(64), nullable=False),
)

instance = Table(
    "migrator_instance",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("job", String(64), nullable=False, index=True),
    Column("service", String(255), nullable=False),
    Column("host", String(255), nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("version", String(255), nullable=False),
    Column("migrator", String(64), nullable=False),
    Column("role", String(16), nullable=False),
    Column("mode", String(16), nullable=False),
    Column("revision", String(64), nullable=False),
    Column("installation", String(64), nullable=False),
    Column("since", Double, nullable=False),
    Column("alive_at", Double, nullable=False),
)

instance_process = Table(
    "migrator_instance_process",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("job", String(64), nullable=False, index=True),
    Column("sees", String(255), nullable=False),
    Column("born", String(64), nullable=False),
)

# ── phases, and what they are judged by ──

phase = Table(
    "migrator_phase",
    metadata,
    Column("job", String(64), primary_key=True),
    Column("pattern", String(255), primary_key=True),
    Column("phase", String(16), nullable=False),
    Column("percent", Integer, nullable=False),
    Column("version", Integer, nullable=False),
    Column("since", Double, nullable=False),
)

move = Table(
    "migrator_move",
    metadata,
    Column("job", String(64), primary_key=True),
    Column("pattern", String(255), primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("who", String(255), nullable=False),
    Column("before", String(32), nullable=False),
    Column("after", String(32), nullable=False),
    Column("reason", Text, nullable=False),
    Column("evidence", LONG_TEXT, nullable=False),
    Column("override", Integer, nullable=False),
    Column("revision", String(64), nullable=False),
    # Whom a ramp was aimed at before and after the move, as JSON; NULL: nobody.
    Column("audience", LONG_TEXT),
)

confirmed_phase = Table(
    "migrator_confirmed_phase",
    metadata,
    Column("instance", String(32), primary_key=True),
    Column("pattern", String(255), primary_key=True),
    Column("job", String(64), nullable=False, index=True),
    Column("version", Integer, nullable=False),
)

window = Table(
    "migrator_window",
    metadata,
    Column("job", String(64), primary_key=True),
    Column("pattern", String(255), primary_key=True),
    Column("begun_at", BigInteger, primary_key=True, autoincrement=False),
    Column("writer", String(32), primary_key=True),
    Column("service", String(255), nullable=False),
    Column("revision", String(64), nullable=False),
    Column("origin", String(16), nullable=False),
    # Counts and histograms as JSON: they are written and read whole.
    Column("counts", LONG_TEXT, nullable=False),
    # What the pattern's answer was made of, as a digest.
    Column("answer", String(64), nullable=False),
)

sample = Table(
    "migrator_sample",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("job", String(64), nullable=False),
    Column("pattern", String(255), nullable=False),
    Column("kind", DIGEST, nullable=False),
    Column("at", Double, nullable=False),
    Column("content", LONG_TEXT, nullable=False),
)
Index("migrator_sample_kind", sample.c.job, sample.c.pattern, sample.c.kind)

for table in metadata.tables.values():
    # Names that differ in case, or by an accent, are two names.
    table.dialect_kwargs.update(mysql_engine="InnoDB", mysql_charset="utf8mb4", mysql_collate="utf8mb4_bin")
