"""Capture on PostgreSQL: the schema `migrator`, one trigger function a table, three triggers that call it."""

from __future__ import annotations

from collections.abc import Sequence

from migrator.facts import Column
from migrator.mapping.changes import Captured
from migrator.source.capture.design import VERSION, Trigger, columns_of, digest_of

SCHEMA = "migrator"
MARK_COLUMNS = f"""\
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    table_name text NOT NULL DEFAULT '',                -- schema.table; '' where a root is named
    image_before text,                                  -- JSON: column -> type:text, of UPDATE, DELETE and TRUNCATE
    image_after text,                                   -- the same, of INSERT and UPDATE
    root_entity text,
    root_key text,
    item_keys text NOT NULL DEFAULT '[]',               -- JSON: item keys that the root had
    work_cursor text NOT NULL DEFAULT '',               -- where the work on a mark of many roots goes on
    tries integer NOT NULL DEFAULT 0,                   -- how often it failed
    ready_at double precision NOT NULL DEFAULT 0,       -- times are seconds since 1970, by this server's clock
    leased_until double precision NOT NULL DEFAULT 0,
    lease_owner text,
    changed_at double precision NOT NULL DEFAULT extract(epoch FROM clock_timestamp()),
    version smallint NOT NULL DEFAULT {VERSION}"""

# Whatever the service's session says, an image is written as our own reading connections are told to speak.
_SETTINGS = {
    "search_path": "pg_catalog, pg_temp",
    "DateStyle": "'ISO'",
    "TimeZone": "'UTC'",
    "IntervalStyle": "'iso_8601'",
    "extra_float_digits": "1",
    "bytea_output": "'hex'",
    "row_security": "off",
}
_TRUNCATE = "'Do it in a transaction of ISOLATION LEVEL READ COMMITTED, or DELETE the rows.'"
PARTS = {"row": "migrator_row", "update": "migrator_update", "truncate": "migrator_truncate"}


class PostgresqlDdl:
    mark = f"{SCHEMA}.mark"
    ticket = f"{SCHEMA}.ticket"
    now = "CAST(extract(epoch FROM clock_timestamp()) AS double precision)"

    def tables(self) -> list[str]:
        ticket = (
            "id integer PRIMARY KEY CHECK (id = 1), epoch bigint NOT NULL, number bigint NOT NULL,"
            " installation text NOT NULL, version integer NOT NULL, job text NOT NULL, marked_by text NOT NULL"
        )
        return [
            f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}",
            # Marks come and go: what they leave is to be swept after some thousand, not after a fifth of the table.
            f"CREATE TABLE IF NOT EXISTS {self.mark} (\n{MARK_COLUMNS}\n)"
            " WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000)",
            f"CREATE TABLE IF NOT EXISTS {self.ticket} ({ticket})",
        ]

    def no_tables(self) -> list[str]:
        return [
            f"DROP TABLE IF EXISTS {self.mark}",
            f"DROP TABLE IF EXISTS {self.ticket}",
            f"DROP SCHEMA IF EXISTS {SCHEMA}",
        ]

    def triggers(self, captured: Captured) -> list[Trigger]:
        table, body, when = _table(captured), self._body(captured), _when(captured)
        digest = digest_of(body, when, *(f"{name} {value}" for name, value in _SETTINGS.items()))
        function = f"{SCHEMA}.{function_name(captured.name, digest)}"
        settings = "\n".join(f"    SET {name} = {value}" for name, value in _SETTINGS.items())
        made = (
            f"CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER\n"
            f"{settings}\nAS $migrator${body}$migrator$"
        )
        timing = {
            "row": f"AFTER INSERT OR DELETE ON {table} FOR EACH ROW",
            "update": f"AFTER UPDATE ON {table} FOR EACH ROW{when}",
            "truncate": f"BEFORE TRUNCATE ON {table} FOR EACH STATEMENT",
        }
        return [
            Trigger(
                captured.name,
                PARTS[part],
                digest,
                (
                    *([made] if part == "row" else []),
                    f"CREATE OR REPLACE TRIGGER {PARTS[part]} {words} EXECUTE FUNCTION {function}()",
                    f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {PARTS[part]}",
                ),
                (
                    f"DROP TRIGGER {PARTS[part]} ON {table}",
                    *([f"DROP FUNCTION {function}()"] if part == "truncate" else []),
                ),
            )
            for part, words in timing.items()
        ]

    def quoted(self, name: str) -> str:
        return quoted(name)

    def image(self, columns: Sequence[Column], row: str) -> str:
        return image(columns, row)

    def of_partition(self, captured: Captured, schema: str, partition: str) -> Trigger:
        """TRUNCATE of a partition alone; the parent's trigger for it fires only when the parent is named."""
        digest = self.triggers(captured)[0].digest
        table = f"{quoted(schema)}.{quoted(partition)}"
        name, function = PARTS["truncate"], f"{SCHEMA}.{function_name(captured.name, digest)}"
        create = (
            f"CREATE OR REPLACE TRIGGER {name} BEFORE TRUNCATE ON {table} FOR EACH STATEMENT"
            f" EXECUTE FUNCTION {function}()",
            f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}",
        )
        return Trigger(f"{schema}.{partition}", name, digest, create, (f"DROP TRIGGER {name} ON {table}",))

    def _body(self, captured: Captured) -> str:
        columns = columns_of(captured, captured.columns)
        name = literal(captured.name)
        # Of the table or the partition that is truncated, so that its name comes at run time.
        held = f"SELECT {name}, {image(columns, 'gone')}"
        truncated = (
            f"INSERT INTO {self.mark} (table_name, image_before) {held}".replace("%", "%%")
            + " FROM %s AS gone"
        )
        return f"""
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        -- Of a transaction's snapshot what was committed since would be missing.
        IF current_setting('transaction_isolation') NOT LIKE 'read %' THEN
            RAISE EXCEPTION 'TRUNCATE of a captured table: rows that this transaction does not see would go without a mark'
                USING ERRCODE = 'feature_not_supported', HINT = {_TRUNCATE};
        END IF;
        EXECUTE format({literal(truncated)}, TG_RELID::regclass);
        RETURN NULL;
    END IF;
    INSERT INTO {self.mark} (table_name, image_before, image_after) VALUES (
        {name},
        CASE WHEN TG_OP <> 'INSERT' THEN {image(columns, "OLD")} END,
        CASE WHEN TG_OP <> 'DELETE' THEN {image(columns, "NEW")} END
    );
    RETURN NULL;
END
"""


def function_name(table: str, digest: str) -> str:
    return f"capture_{digest_of(table)}_{digest}"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    # The form with E keeps a backslash whatever standard_conforming_strings says.
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _table(captured: Captured) -> str:
    table = captured.table
    return quoted(table.real) if table.schema is None else f"{quoted(table.schema)}.{quoted(table.real)}"


def image(columns: Sequence[Column], row: str) -> str:
    """JSON of written name -> the type's oid, a colon and the value's own text; NULL is null."""
    names = ", ".join(literal(column.name) for column in columns)
    values = ",\n            ".join(_value(column, row) for column in columns)
    return f"json_object(ARRAY[{names}]::text[], ARRAY[\n            {values}]::text[])::text"


def _value(column: Column, row: str) -> str:
    # concat() takes the type's output, as a SELECT does; a cast to text would trim char(n) and widen an inet.
    held = f"{row}.{quoted(column.real)}"
    if column.kind.read_as:
        held = f"CAST({held} AS {column.kind.read_as})"
    if column.kind.name in ("list", "map"):
        held = f"to_json({held})"
    return f"CASE WHEN {held} IS DISTINCT FROM NULL THEN concat(pg_typeof({held})::oid, ':', {held}) END"


def _when(captured: Captured) -> str:
    """Compares bytes: no type lacks them, and no collation takes two texts for one."""
    if captured.watched is None:
        return ""
    columns = columns_of(captured, captured.watched)
    old, new = (", ".join(f"{side}.{quoted(one.real)}" for one in columns) for side in ("OLD", "NEW"))
    return f"\n    WHEN (pg_catalog.record_image_ne(ROW({old}), ROW({new})))"
