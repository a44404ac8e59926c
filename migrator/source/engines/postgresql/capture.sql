-- Tables and triggers of ours on PostgreSQL, by name (Queries in source/engines/catalogue.py).

-- name: mark_table
-- Marks come and go: autovacuum should run after some thousand, not after a fifth of the table.
CREATE TABLE IF NOT EXISTS {mark} (
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
    version smallint NOT NULL DEFAULT {version}
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000)

-- name: capturing
-- It runs as its owner, with the service's search_path unless a type needs ours: every name is qualified.
DECLARE
    image_before pg_catalog.text;
    image_after pg_catalog.text;
BEGIN
    IF TG_OP OPERATOR(pg_catalog.=) 'TRUNCATE' THEN
        -- Of a transaction's snapshot what was committed since would be missing.
        IF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.!~~) 'read %' THEN
            RAISE EXCEPTION 'TRUNCATE of a captured table: rows that this transaction does not see would go without a mark'
                USING ERRCODE = 'feature_not_supported', HINT = 'Do it in a transaction of ISOLATION LEVEL READ COMMITTED, or DELETE the rows.';
        END IF;
        IF pg_catalog.row_security_active(TG_RELID) THEN
            RAISE EXCEPTION 'TRUNCATE of a captured table: rows that row level security hides would go without a mark'
                USING ERRCODE = 'insufficient_privilege', HINT = 'DELETE the rows, or give the owner of this function BYPASSRLS.';
        END IF;
        EXECUTE pg_catalog.format({truncated}, TG_RELID::pg_catalog.regclass);
        RETURN NULL;
    END IF;
    IF TG_OP OPERATOR(pg_catalog.<>) 'INSERT' THEN
        image_before := {old};
    END IF;
    IF TG_OP OPERATOR(pg_catalog.<>) 'DELETE' THEN
        image_after := {new};
    END IF;
    INSERT INTO {mark} (table_name, image_before, image_after) VALUES ({name}, image_before, image_after);
    RETURN NULL;
END

-- name: refusing
BEGIN
    IF current_setting('migrator.reverse', true) IS DISTINCT FROM 'on' THEN
        RAISE EXCEPTION '{refusal}', TG_TABLE_NAME;
    END IF;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    RETURN NEW;
END
