-- Queries of the catalogue of PostgreSQL, by name (Queries in source/engines/catalogue.py).

-- ── tables ──

-- name: used
-- The types of the schema's columns, and all types that these are made of.
WITH RECURSIVE used (oid) AS (
    SELECT a.atttypid FROM pg_catalog.pg_attribute a
    JOIN pg_catalog.pg_class c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname = :schema
    WHERE a.attnum > 0 AND NOT a.attisdropped
    UNION
    SELECT part.oid FROM used u JOIN pg_catalog.pg_type t ON t.oid = u.oid
    CROSS JOIN LATERAL (
        SELECT t.typelem AS oid WHERE t.typelem <> 0
        UNION ALL SELECT t.typbasetype WHERE t.typtype = 'd'
        UNION ALL SELECT f.atttypid FROM pg_catalog.pg_attribute f
            WHERE t.typtype = 'c' AND f.attrelid = t.typrelid AND f.attnum > 0 AND NOT f.attisdropped
    ) part
)

-- name: types
{used}
SELECT t.oid, t.typtype AS form, t.typbasetype AS base, t.typtypmod AS modifier,
    pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(t.typname) AS qualified,
    CASE WHEN n.nspname = 'pg_catalog' THEN pg_catalog.format_type(t.oid, NULL) ELSE t.typname END AS name,
    (SELECT e.oid FROM pg_catalog.pg_type e WHERE e.oid = t.typelem AND e.typarray = t.oid) AS element
FROM used u JOIN pg_catalog.pg_type t ON t.oid = u.oid
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace

-- name: fields
{used}
SELECT t.oid, f.attname AS name, f.atttypid AS type, f.atttypmod AS modifier, f.attnum AS number
FROM used u JOIN pg_catalog.pg_type t ON t.oid = u.oid AND t.typtype = 'c'
JOIN pg_catalog.pg_attribute f ON f.attrelid = t.typrelid AND f.attnum > 0 AND NOT f.attisdropped
ORDER BY t.oid, f.attnum

-- name: labels
{used}
SELECT e.enumtypid AS oid, e.oid AS number, e.enumlabel AS label
FROM used u JOIN pg_catalog.pg_enum e ON e.enumtypid = u.oid

-- name: of_extension
EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e'
    AND d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass)

-- name: columns
-- NOT NULL on a foreign table is not enforced, and one that is NOT VALID has not been for all rows: PostgreSQL 18 has such.
-- A partition's rows are its parent's rows too, and are read there.
-- SQLAlchemy's inspector omits the length and scale of a domain's type, and does not know many types.
SELECT c.relname AS table_name, a.attname AS name, a.attnum AS number, a.atttypid AS type, a.atttypmod AS modifier,
    NOT ((a.attnotnull OR t.typnotnull) AND c.relkind IN ('r', 'p')) OR EXISTS (SELECT FROM pg_catalog.pg_constraint k
        WHERE k.conrelid = c.oid AND k.contype = 'n' AND k.conkey = ARRAY[a.attnum] AND NOT k.convalidated) AS nullable,
    pg_catalog.format_type(a.atttypid, a.atttypmod) AS declared, a.attcollation AS collation,
    a.attgenerated <> '' AS computed, a.attgenerated = 'v' AS virtual,
    CASE WHEN a.attgenerated <> '' THEN (SELECT pg_catalog.pg_get_expr(x.adbin, x.adrelid)
        FROM pg_catalog.pg_attrdef x WHERE x.adrelid = c.oid AND x.adnum = a.attnum) END AS expression,
    a.atthasdef OR a.attidentity <> '' AS has_default,
    CASE pg_catalog.getdatabaseencoding() WHEN 'UTF8' THEN 4 WHEN 'SQL_ASCII' THEN 4 ELSE 3 END AS widest
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname = :schema
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition AND c.relispopulated
    AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')
    AND pg_catalog.has_any_column_privilege(c.oid, 'SELECT') AND NOT {of_extension}
ORDER BY c.relname, a.attnum

-- name: left_out
SELECT c.relname, CASE WHEN {of_extension} THEN :of_extension
    WHEN c.relispopulated THEN :unreadable ELSE :unpopulated END
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = :schema AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
    AND NOT (c.relispopulated AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')
        AND pg_catalog.has_any_column_privilege(c.oid, 'SELECT') AND NOT {of_extension})
ORDER BY c.relname

-- name: unique_indexes
-- Indexes of columns only that cover every row, those of constraints first.
SELECT c.relname AS table_name, i.indisprimary AS is_primary,
    i.indisvalid AND i.indisready AS valid, i.indimmediate AS immediate,
    ARRAY(SELECT a.attname::text FROM unnest(i.indkey::int[]) WITH ORDINALITY k(number, place)
        JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
        WHERE k.place <= i.indnkeyatts ORDER BY k.place) AS names,
    EXISTS (SELECT FROM pg_catalog.pg_inherits h JOIN pg_catalog.pg_class heir ON heir.oid = h.inhrelid
        WHERE h.inhparent = c.oid AND NOT heir.relispartition) AS inherited
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class c ON c.oid = i.indrelid
JOIN pg_catalog.pg_class own ON own.oid = i.indexrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname = :schema
WHERE i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL
ORDER BY EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE k.conindid = own.oid AND k.contype = 'u') DESC, own.relname

-- name: foreign_keys
-- Without those that the server does not enforce, and those of a PERIOD, which another one covers and need not equal:
-- PostgreSQL 18 has both.
SELECT c.relname AS table_name, k.conname AS name, k.convalidated AS proved
FROM pg_catalog.pg_constraint k
JOIN pg_catalog.pg_class c ON c.oid = k.conrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname = :schema
WHERE k.contype = 'f' AND COALESCE(to_jsonb(k) ->> 'conenforced', 'true') = 'true'
    AND COALESCE(to_jsonb(k) ->> 'conperiod', 'false') = 'false'

-- name: nondeterministic
SELECT c.oid, pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.collname) AS name
FROM pg_catalog.pg_collation c JOIN pg_catalog.pg_namespace n ON n.oid = c.collnamespace
WHERE NOT c.collisdeterministic AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')

-- name: rows_at_least
-- Changes since the last ANALYZE may all have been deletes. For a table emptied since, nothing is known (-1).
SELECT CAST(SUM(GREATEST(t.reltuples, 0)) AS bigint)
    - CAST(SUM(COALESCE(pg_stat_get_mod_since_analyze(t.oid), 0)) AS bigint)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (SELECT c.oid UNION SELECT relid FROM pg_partition_tree(c.oid)) p (id)
JOIN pg_catalog.pg_class t ON t.oid = p.id AND t.relkind = 'r'
WHERE c.relkind IN ('r', 'p') AND n.nspname = COALESCE(:schema, current_schema()) AND c.relname = :name

-- name: has_blocks
SELECT bool_and(t.relkind IN ('r', 'p', 'm'))
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (SELECT c.oid UNION SELECT relid FROM pg_partition_tree(c.oid)) p (id)
JOIN pg_catalog.pg_class t ON t.oid = p.id
WHERE n.nspname = COALESCE(:schema, current_schema()) AND c.relname = :name

-- name: sequences
-- Of serial and identity columns, and of any other whose default draws from a sequence.
SELECT a.attname AS column, s.oid AS oid, n.nspname AS schema, s.relname AS name
FROM pg_catalog.pg_class t
JOIN pg_catalog.pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = t.oid AND d.adnum = a.attnum
JOIN pg_catalog.pg_depend p ON
    p.classid = 'pg_catalog.pg_attrdef'::regclass AND p.objid = d.oid AND p.refclassid = 'pg_catalog.pg_class'::regclass
    OR p.classid = 'pg_catalog.pg_class'::regclass AND p.refclassid = 'pg_catalog.pg_class'::regclass
        AND p.refobjid = t.oid AND p.refobjsubid = a.attnum AND p.deptype = 'i'
JOIN pg_catalog.pg_class s ON s.relkind = 'S'
    AND s.oid = CASE p.classid WHEN 'pg_catalog.pg_attrdef'::regclass THEN p.refobjid ELSE p.objid END
JOIN pg_catalog.pg_namespace n ON n.oid = s.relnamespace
WHERE t.relname = :table AND t.relnamespace = COALESCE(
    (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = :schema),
    (SELECT relnamespace FROM pg_catalog.pg_class WHERE oid = to_regclass(quote_ident(:table))))

-- name: always_generated
SELECT attname FROM pg_catalog.pg_attribute
WHERE attidentity = 'a' AND attrelid = to_regclass(:table)

-- name: routines
-- PostgreSQL declares half of its own text functions STABLE (concat, format), so of its own only VOLATILE ones count.
SELECT DISTINCT CASE WHEN p.provolatile = 'v' THEN 'is declared VOLATILE' ELSE 'is declared STABLE' END
    || CASE WHEN n.nspname = 'pg_catalog' THEN '' ELSE ', and may read other tables' END
FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
WHERE p.proname = :name
    AND (n.nspname = :schema OR :schema = '' AND pg_catalog.pg_function_is_visible(p.oid))
    AND (p.provolatile = 'v' OR p.provolatile = 's' AND n.nspname <> 'pg_catalog')

-- ── links between tables ──

-- name: pair
pn.nspname AS parent_schema, p.relname AS parent, cn.nspname AS child_schema, c.relname AS child

-- name: schemas_of_pair
JOIN pg_catalog.pg_namespace pn ON pn.oid = p.relnamespace JOIN pg_catalog.pg_namespace cn ON cn.oid = c.relnamespace

-- name: heirs
SELECT {pair} FROM pg_catalog.pg_inherits i
JOIN pg_catalog.pg_class p ON p.oid = i.inhparent JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid {schemas_of_pair}
WHERE c.relkind IN ('r', 'p', 'f')

-- name: rewritten
-- What a view or a rule names.
pg_catalog.pg_depend d
JOIN pg_catalog.pg_rewrite r ON r.oid = d.objid AND d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass
JOIN pg_catalog.pg_class p ON p.oid = d.refobjid JOIN pg_catalog.pg_class c ON c.oid = r.ev_class {schemas_of_pair}
WHERE d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass

-- name: view_tables
SELECT DISTINCT {pair} FROM {rewritten} AND c.relkind = 'v' AND c.oid <> p.oid

-- name: rules
SELECT DISTINCT {pair}, r.ev_type AS event, pg_catalog.quote_ident(p.relname) AS written,
    pg_catalog.pg_get_ruledef(r.oid) AS text
FROM {rewritten} AND c.relkind IN ('r', 'p') AND r.ev_type <> '1'

-- name: referring
SELECT {pair} FROM pg_catalog.pg_constraint k
JOIN pg_catalog.pg_class p ON p.oid = k.confrelid JOIN pg_catalog.pg_class c ON c.oid = k.conrelid {schemas_of_pair}
WHERE k.contype = 'f'

-- name: acting
-- A key that PostgreSQL copied to partitions belongs to their table; one made for a partition changes the table's rows.
SELECT {pair}, k.confdeltype IN ('c', 'n', 'd') AS on_delete, k.confupdtype IN ('c', 'n', 'd') AS on_update,
    ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY AS u(number, at) JOIN pg_catalog.pg_attribute a
        ON a.attrelid = k.conrelid AND a.attnum = u.number ORDER BY u.at) AS own,
    ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY AS u(number, at) JOIN pg_catalog.pg_attribute a
        ON a.attrelid = k.confrelid AND a.attnum = u.number ORDER BY u.at) AS theirs
FROM pg_catalog.pg_constraint k
JOIN pg_catalog.pg_class p ON p.oid = coalesce(pg_catalog.pg_partition_root(k.confrelid), k.confrelid)
JOIN pg_catalog.pg_class c ON c.oid = coalesce(pg_catalog.pg_partition_root(k.conrelid), k.conrelid) {schemas_of_pair}
WHERE k.contype = 'f' AND k.conparentid = 0 AND (k.confdeltype IN ('c', 'n', 'd') OR k.confupdtype IN ('c', 'n', 'd'))
ORDER BY k.oid

-- ── capture ──

-- name: triggers
-- Clones on partitions come and go with their parent's trigger.
SELECT n.nspname AS schema, c.relname AS name, t.tgname AS trigger, t.tgenabled AS enabled, p.proname AS function,
    p.prosrc || pg_catalog.pg_get_triggerdef(t.oid) AS text
FROM pg_catalog.pg_trigger t
JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
JOIN pg_catalog.pg_namespace ours ON ours.oid = p.pronamespace AND ours.nspname = 'migrator'
JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE NOT t.tgisinternal AND t.tgparentid = 0
ORDER BY 1, 2, 3

-- name: functions
SELECT p.proname FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = 'migrator' AND p.proname ~ '^(capture|refuse)_[0-9a-f_]+$' ORDER BY 1

-- name: partitions
SELECT n.nspname AS schema, c.relname AS name
FROM pg_catalog.pg_class p JOIN pg_catalog.pg_namespace s ON s.oid = p.relnamespace
CROSS JOIN LATERAL pg_catalog.pg_partition_tree(p.oid) t
JOIN pg_catalog.pg_class c ON c.oid = t.relid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE s.nspname = :schema AND p.relname = :table AND p.relkind = 'p' AND t.level > 0
ORDER BY 1, 2

-- name: named
-- Tables by their names, so that a server with thousands of tables visits only these. Parameters: server.named().
unnest(CAST(:schemas AS text[]), CAST(:names AS text[])) w (schema_name, table_name)
JOIN pg_catalog.pg_namespace n ON n.nspname = CAST(w.schema_name AS name)
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = CAST(w.table_name AS name)

-- name: table_kinds
SELECT n.nspname || '.' || c.relname AS name, c.relkind AS kind,
    pg_catalog.pg_has_role(c.relowner, 'USAGE') AS owned,
    EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid) AS has_heirs
FROM {named} WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')

-- name: views
SELECT n.nspname || '.' || c.relname AS name
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('v', 'm', 'f')

-- name: definitions
SELECT p.proname AS name, concat_ws(' ', p.prosrc, pg_catalog.pg_get_function_sqlbody(p.oid), p.proconfig) AS text
FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'migrator') AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_depend d
    WHERE d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND d.objid = p.oid AND d.deptype = 'e')
UNION ALL
SELECT c.relname, pg_catalog.pg_get_viewdef(c.oid)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('v', 'm') AND n.nspname NOT IN ('pg_catalog', 'information_schema')

-- name: may_create
SELECT CASE WHEN pg_catalog.to_regnamespace(:schema) IS NULL
    THEN pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE')
    ELSE pg_catalog.has_schema_privilege(:schema, 'CREATE') END

-- name: changing_triggers
-- Bits of tgtype: 1 for each row, 2 before, 4 of an INSERT, 16 of an UPDATE. Source: src/include/catalog/pg_trigger.h.
SELECT t.tgname FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE NOT t.tgisinternal AND t.tgtype & 3 = 3 AND t.tgtype & 20 <> 0 AND c.relname = :name
    AND n.nspname = coalesce(CAST(:schema AS name), current_schema())

-- ── writers ──

-- name: counted_changes
-- PostgreSQL counts changes of a partition only there. This uses the functions behind the view pg_stat_user_tables:
-- joined with the view, the server would visit every table once for every table.
SELECT n.nspname, c.relname, SUM(pg_stat_get_tuples_inserted(t.id) + pg_stat_get_tuples_updated(t.id)
    + pg_stat_get_tuples_deleted(t.id)) FROM {named}
CROSS JOIN LATERAL (SELECT c.oid UNION SELECT relid FROM pg_partition_tree(c.oid)) t (id)
WHERE c.relkind IN ('r', 'p') GROUP BY 1, 2

-- name: open_transactions
SELECT DISTINCT l.virtualtransaction, n.nspname, c.relname, COALESCE(s.usename || CASE s.application_name
    WHEN '' THEN '' ELSE ' (' || s.application_name || ')' END, x.owner || ' (prepared)', '')
FROM pg_catalog.pg_locks l LEFT JOIN LATERAL pg_partition_ancestors(l.relation) a (id) ON true
JOIN pg_catalog.pg_class c ON c.oid = COALESCE(a.id, l.relation)
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_stat_activity s ON s.pid = l.pid
LEFT JOIN pg_catalog.pg_prepared_xacts x ON l.pid IS NULL AND l.virtualtransaction = '-1/' || x.transaction
WHERE l.locktype = 'relation' AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
    AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
    AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')

-- name: rights_to_write
-- information_schema shows a plain user only its own rights; the catalogue may be read by all. Rights on columns count
-- with those on their table; a partition has its own. OFFSET 0: each table is looked up, instead of reading all for each.
SELECT n.nspname, c.relname, tn.nspname, tc.relname, r.rolname, a.privilege_type, bool_or(a.is_grantable)
FROM {named}
CROSS JOIN LATERAL (SELECT c.oid UNION SELECT relid FROM pg_partition_tree(c.oid)) t (id)
CROSS JOIN LATERAL (SELECT * FROM pg_catalog.pg_class WHERE oid = t.id OFFSET 0) tc
JOIN pg_catalog.pg_namespace tn ON tn.oid = tc.relnamespace
CROSS JOIN LATERAL (SELECT * FROM aclexplode(COALESCE(tc.relacl, acldefault('r', tc.relowner)))
    UNION ALL SELECT x.* FROM pg_catalog.pg_attribute f, aclexplode(f.attacl) x
    WHERE f.attrelid = tc.oid AND NOT f.attisdropped) a
LEFT JOIN pg_catalog.pg_roles r ON r.oid = a.grantee
WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
    AND a.privilege_type IN ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE') AND (a.grantee = 0 OR r.oid IS NOT NULL)
GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6

-- name: may_write_all
SELECT rolname FROM pg_catalog.pg_roles
WHERE rolcanlogin AND pg_has_role(oid, 'pg_write_all_data', 'MEMBER') ORDER BY 1

-- ── rights of this user ──

-- name: has_log
-- Whether capture reads the log (source/capture/log/).
SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'migrator' AND c.relname = 'log')

-- name: owners
SELECT DISTINCT pg_catalog.pg_get_userbyid(c.relowner) FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = :schema AND c.relname = :name

-- name: has_table
SELECT pg_catalog.has_table_privilege(c.oid, :right) FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = :schema AND c.relname = :name

-- name: has_sequence
SELECT pg_catalog.has_sequence_privilege(c.oid, :right) FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = :schema AND c.relname = :name

-- name: has_schema
SELECT pg_catalog.has_schema_privilege(oid, :right) FROM pg_catalog.pg_namespace WHERE nspname = :name

-- name: has_database
SELECT pg_catalog.has_database_privilege(:name, :right)

-- name: has_attribute
SELECT rolsuper OR rolreplication OR EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'rds_replication'
    AND pg_catalog.pg_has_role(oid, 'MEMBER')) FROM pg_catalog.pg_roles WHERE rolname = current_user

-- name: has_owner
SELECT pg_catalog.pg_has_role(oid, :right) FROM pg_catalog.pg_roles WHERE rolname = :name
