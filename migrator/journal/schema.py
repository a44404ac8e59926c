"""The journal's tables, as SQLAlchemy metadata of its present version."""

from __future__ import annotations

from sqlalchemy import (
    BINARY,
    BigInteger,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

VERSION = 1
"""Version of the tables: another set of them is another version."""


# MySQL's own types. Its dialect has them as well, and loads slowly.
class _LongText(Text):
    __visit_name__ = "LONGTEXT"


class _LongBlob(LargeBinary):
    __visit_name__ = "LONGBLOB"


# MySQL takes no BLOB in a key and no more than 64 KB in a TEXT.
DIGEST = LargeBinary(16).with_variant(BINARY(16), "mysql")
LONG_TEXT = Text().with_variant(_LongText(), "mysql")

metadata = MetaData()

meta = Table("migrator_meta", metadata, Column("version", Integer, primary_key=True))

# All small records that are looked up by key: see records.py.
record = Table(
    "migrator_record",
    metadata,
    # A job, or a table's id; '' for the journal itself.
    Column("scope", String(255), primary_key=True),
    Column("kind", String(32), primary_key=True),
    Column("id", String(255), primary_key=True),
    # As JSON.
    Column("value", LONG_TEXT, nullable=False),
    # The last heartbeat; 0 for a kind without one.
    Column("alive_at", Double, nullable=False),
)

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


def _of_finding() -> tuple[Column[str], ...]:
    texts = ("reason", "source_key", "item_key", "attribute", "item_type", "owner")
    return (
        Column("kind", String(16), nullable=False),
        Column("entity", String(255), nullable=False),
        *(Column(name, Text, nullable=False) for name in texts),
    )


finding = Table(
    "migrator_finding",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("run_id", Integer, nullable=False),
    Column("digest", DIGEST, nullable=False),
    *_of_finding(),
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
    # Of the reading that found it.
    Column("ticket", BigInteger, nullable=False),
)

open_finding = Table(
    "migrator_open_finding",
    metadata,
    Column("job", String(64), primary_key=True),
    # Of the table, the kind, the row, the item and the attribute: a repeated finding replaces the earlier one.
    Column("digest", DIGEST, primary_key=True),
    Column("table_id", String(255), nullable=False),
    Column("root", DIGEST, nullable=False, index=True),
    Column("ticket", BigInteger, nullable=False),
    *_of_finding(),
)

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

# ── phases and their evidence ──

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
    # A ramp's audience before and after the move, as JSON; NULL: none.
    Column("audience", LONG_TEXT),
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
    # Counts and histograms as JSON: always read and written as a whole.
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

# ── Tables of processes at work ──


# ── pages and budgets of a run, shared by its processes ──

page_claim = Table(
    "migrator_page_claim",
    metadata,
    Column("run_id", Integer, primary_key=True, autoincrement=False),
    Column("entity", String(255), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("who", String(32), nullable=False),
    # NULL: the page was tried and left open; it cannot be claimed before the run is resumed.
    Column("leased_until", Double),
)

# What a verify page leaves for the run's other processes; deleted at the end of the run.
page_part = Table(
    "migrator_page_part",
    metadata,
    Column("run_id", Integer, primary_key=True, autoincrement=False),
    Column("entity", String(255), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("part", Integer, primary_key=True, autoincrement=False),
    Column("data", LargeBinary().with_variant(_LongBlob(), "mysql", "mariadb"), nullable=False),
)

# ── streams of DynamoDB tables that a job reads ──

stream_shard = Table(
    "migrator_stream_shard",
    metadata,
    Column("job", String(64), primary_key=True),
    Column("arn", String(400), primary_key=True),
    Column("shard", String(80), primary_key=True),
    # '' for none.
    Column("parent", String(80), nullable=False),
    # Of the last record up to which all are processed, '' for none yet; and the time up to which all are.
    Column("sequence", String(64), nullable=False),
    Column("passed_at", Double, nullable=False),
    Column("is_finished", Integer, nullable=False),
    Column("owner", String(64), nullable=False),
    Column("leased_until", Double, nullable=False),
)

# ── live change of a source of DynamoDB tables ──

# A record of a stream to be processed, or a row to be checked.
source_mark = Table(
    "migrator_source_mark",
    metadata,
    # An INTEGER on SQLite, the only type that it auto-increments.
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("job", String(64), nullable=False, index=True),
    # '' if a root is named.
    Column("table_name", String(255), nullable=False),
    Column("image_before", LONG_TEXT),
    Column("image_after", LONG_TEXT),
    Column("root_entity", String(255)),
    Column("root_key", Text),
    Column("item_keys", LONG_TEXT, nullable=False),
    Column("work_cursor", Text, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("ready_at", Double, nullable=False),
    Column("leased_until", Double, nullable=False),
    Column("changed_at", Double, nullable=False),
    # The id of a processed mark must never be reused.
    sqlite_autoincrement=True,
)

# ── reverse ──

# The items that contain a row, or did.
reverse_key = Table(
    "migrator_reverse_key",
    metadata,
    Column("job", String(64), primary_key=True),
    # Digests of the table's name and the row, and of the item's key.
    Column("row_digest", DIGEST, primary_key=True),
    Column("item_digest", DIGEST, primary_key=True, index=True),
    Column("source_table", String(255), nullable=False),
    Column("source_key", Text, nullable=False),
    Column("item_key", Text, nullable=False),
)

# Rows to be re-checked.
reverse_row = Table(
    "migrator_reverse_row",
    metadata,
    Column("job", String(64), primary_key=True),
    Column("row_digest", DIGEST, primary_key=True),
    Column("source_table", String(255), nullable=False),
    Column("source_key", Text, nullable=False),
    Column("waits", String(16), nullable=False),
    Column("due_at", Double, nullable=False),
    Column("why", Text, nullable=False),
    Column("looks", Integer, nullable=False),
    Column("tries", Integer, nullable=False),
)


def tables_on(dialect: str) -> list[Table]:
    """All tables, in the order in which they are created."""
    if dialect == "mysql":
        for table in metadata.tables.values():
            # Names that differ by case or accent are different names.
            options = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}
            table.dialect_kwargs.update(options)
    return metadata.sorted_tables
