"""The journal's tables."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

VERSION = 2
"""Raised with every change of these tables."""

metadata = MetaData()

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
    Column("write_units", Float, nullable=False, default=0.0),
    Column("different", BigInteger, nullable=False, default=0),
)

finding = Table(
    "migrator_finding",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("run_id", Integer, nullable=False),
    Column("digest", LargeBinary(16), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("entity", String(255), nullable=False),
    Column("reason", Text, nullable=False),
    Column("source_key", Text, nullable=False),
    Column("item_key", Text, nullable=False),
    Column("attribute", Text, nullable=False),
    UniqueConstraint("run_id", "digest", name="migrator_finding_once"),
)
Index("migrator_finding_kind", finding.c.run_id, finding.c.kind)

segment = Table(
    "migrator_segment",
    metadata,
    Column("run_id", Integer, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("state", Text, nullable=False),
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
    Column("digest", LargeBinary(16), primary_key=True),
    Column("owner", Text, nullable=False),
    sqlite_with_rowid=False,
)

lease = Table(
    "migrator_lease",
    metadata,
    Column("job", String(64), primary_key=True),
    Column("holder", Text, nullable=False),
    Column("since", String(40), nullable=False),
    Column("expires_at", Float, nullable=False),
)
