-- What capture from PostgreSQL's log asks, by name (Queries in source/engines/catalogue.py).

-- name: server
SELECT current_setting('server_version_num')::integer AS version, current_setting('wal_level') AS wal_level,
    current_setting('max_replication_slots')::integer AS slots, current_setting('max_wal_senders')::integer AS senders,
    (SELECT count(*) FROM pg_catalog.pg_replication_slots) AS slots_used,
    (SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE backend_type = 'walsender') AS senders_used,
    (SELECT setting::bigint FROM pg_catalog.pg_settings WHERE name = 'max_slot_wal_keep_size') AS keep_mb,
    EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'rds_replication') AS is_rds,
    quote_ident(current_user) AS who, quote_ident(current_database()) AS database, current_database() AS name,
    has_database_privilege(current_database(), 'CREATE') AS may_create,
    (SELECT rolsuper OR rolreplication FROM pg_catalog.pg_roles WHERE rolname = current_user)
        OR EXISTS (SELECT FROM pg_catalog.pg_roles
            WHERE rolname = 'rds_replication' AND pg_catalog.pg_has_role(oid, 'MEMBER')) AS may_replicate

-- name: tables
-- {named}: the tables by their names, as the engine's queries have it.
SELECT n.nspname || '.' || c.relname AS name, pg_catalog.pg_has_role(c.relowner, 'USAGE') AS owned,
    CASE WHEN c.relkind = 'p' THEN leaf.oid::regclass::text ELSE '' END AS partition,
    leaf.relpersistence AS persistence, leaf.relreplident AS identity,
    quote_ident(ln.nspname) || '.' || quote_ident(leaf.relname) AS quoted,
    CASE leaf.relreplident
        WHEN 'd' THEN (SELECT array_agg(a.attname::text) FROM pg_catalog.pg_index i
            JOIN pg_catalog.pg_attribute a ON a.attrelid = leaf.oid AND a.attnum = ANY (i.indkey)
            WHERE i.indrelid = leaf.oid AND i.indisprimary)
        WHEN 'i' THEN (SELECT array_agg(a.attname::text) FROM pg_catalog.pg_index i
            JOIN pg_catalog.pg_attribute a ON a.attrelid = leaf.oid AND a.attnum = ANY (i.indkey)
            WHERE i.indrelid = leaf.oid AND i.indisreplident)
    END AS key
FROM {named}
CROSS JOIN LATERAL (
    SELECT l.* FROM pg_catalog.pg_class l WHERE c.relkind <> 'p' AND l.oid = c.oid
    UNION ALL
    SELECT l.* FROM pg_catalog.pg_partition_tree(c.oid) t JOIN pg_catalog.pg_class l ON l.oid = t.relid
    WHERE c.relkind = 'p' AND t.isleaf
) leaf
JOIN pg_catalog.pg_namespace ln ON ln.oid = leaf.relnamespace
WHERE c.relkind IN ('r', 'p') ORDER BY 1, 3

-- name: published
SELECT n.nspname || '.' || c.relname FROM pg_catalog.pg_publication p
JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid JOIN pg_catalog.pg_class c ON c.oid = r.prrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE p.pubname = :name ORDER BY 1

-- name: whole
-- Tables of which every row and column is published.
SELECT n.nspname || '.' || c.relname FROM pg_catalog.pg_publication p
JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid JOIN pg_catalog.pg_class c ON c.oid = r.prrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE p.pubname = :name AND r.prqual IS NULL AND r.prattrs IS NULL

-- name: publishes_all
SELECT EXISTS (SELECT FROM pg_catalog.pg_publication p WHERE p.pubname = :name AND p.pubinsert AND p.pubupdate
    AND p.pubdelete AND p.pubtruncate AND NOT p.pubviaroot)

-- name: slot
SELECT plugin, coalesce(database, '') AS database, active_pid, coalesce(wal_status, 'reserved') AS wal_status,
    coalesce(confirmed_flush_lsn, '0/0')::text AS confirmed,
    coalesce(pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), restart_lsn), 0) AS kept,
    coalesce(pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), confirmed_flush_lsn), 0) AS behind,
    safe_wal_size AS room
FROM pg_catalog.pg_replication_slots WHERE slot_name = :slot

-- name: keep
UPDATE {log} SET lsn = greatest(lsn, CAST(:lsn AS pg_lsn)), passed_at = greatest(passed_at, :at)
WHERE id = 1 AND slot = :slot AND tables = :tables

-- name: ancestors
SELECT n.nspname || '.' || c.relname AS name,
    EXISTS (SELECT FROM pg_catalog.pg_publication_rel p JOIN pg_catalog.pg_publication o ON o.oid = p.prpubid
        WHERE o.pubname = :slot AND p.prrelid = c.oid) AS is_published
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = CAST(:oid AS oid)
    OR c.oid IN (SELECT relid FROM pg_catalog.pg_partition_ancestors(CAST(:oid AS oid)))

-- name: partitioned
SELECT n.nspname || '.' || c.relname FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'p'

-- name: look
SELECT data FROM pg_catalog.pg_logical_slot_peek_binary_changes(:slot, NULL, :count,
    'proto_version', '1', 'publication_names', pg_catalog.quote_ident(:publication), 'messages', 'true')

-- name: advance
SELECT pg_catalog.pg_replication_slot_advance(slot_name, CAST(:lsn AS pg_lsn)) FROM pg_catalog.pg_replication_slots
WHERE slot_name = :slot AND confirmed_flush_lsn < CAST(:lsn AS pg_lsn)
