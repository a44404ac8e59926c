-- Queries of the catalogue of MariaDB and MySQL, by name (Queries in source/engines/catalogue.py).

-- ── tables ──

-- name: columns
-- A view whose tables are missing has another comment.
SELECT c.TABLE_NAME AS table_name, c.COLUMN_NAME AS name, c.COLUMN_TYPE AS declared,
    c.IS_NULLABLE = 'YES' AS nullable, c.COLLATION_NAME AS collation,
    c.EXTRA LIKE '%VIRTUAL%' OR c.EXTRA LIKE '%STORED%' OR c.EXTRA LIKE '%PERSISTENT%' AS computed,
    c.EXTRA LIKE '%INVISIBLE%' AS hidden,
    c.GENERATION_EXPRESSION AS expression,
    c.EXTRA LIKE '%auto_increment%' OR NULLIF(c.COLUMN_DEFAULT, 'NULL') IS NOT NULL AS has_default
FROM information_schema.TABLES t
JOIN information_schema.COLUMNS c ON c.TABLE_SCHEMA = t.TABLE_SCHEMA AND c.TABLE_NAME = t.TABLE_NAME
WHERE t.TABLE_SCHEMA = COALESCE(:schema, DATABASE())
    AND (t.TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') OR t.TABLE_TYPE = 'VIEW' AND t.TABLE_COMMENT = 'VIEW')
ORDER BY c.TABLE_NAME, c.ORDINAL_POSITION

-- name: hidden_columns
SELECT COLUMN_NAME FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = :schema AND TABLE_NAME = :name AND EXTRA LIKE '%INVISIBLE%'

-- name: unreadable
-- A table on which the user has no right is not listed at all.
SELECT TABLE_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = COALESCE(:schema, DATABASE())
GROUP BY TABLE_NAME HAVING MAX(FIND_IN_SET('select', PRIVILEGES)) = 0

-- name: broken_views
-- MySQL keeps the columns of a broken view, MariaDB its comment.
SELECT t.TABLE_NAME FROM information_schema.TABLES t
LEFT JOIN information_schema.COLUMNS c ON c.TABLE_SCHEMA = t.TABLE_SCHEMA AND c.TABLE_NAME = t.TABLE_NAME
WHERE t.TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND t.TABLE_TYPE = 'VIEW'
    AND (t.TABLE_COMMENT <> 'VIEW' OR c.TABLE_NAME IS NULL)
GROUP BY t.TABLE_NAME

-- name: unique_indexes
-- MariaDB adds the end of a versioned row to its keys, which is the same for all current rows.
SELECT s.TABLE_NAME AS table_name, s.INDEX_NAME AS name, s.COLUMN_NAME AS column_name, s.SUB_PART AS prefix
FROM information_schema.STATISTICS s
LEFT JOIN information_schema.COLUMNS c ON c.TABLE_SCHEMA = s.TABLE_SCHEMA AND c.TABLE_NAME = s.TABLE_NAME
    AND c.COLUMN_NAME = s.COLUMN_NAME
WHERE s.TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND s.NON_UNIQUE = 0
    AND COALESCE(c.GENERATION_EXPRESSION, '') <> 'ROW END'
ORDER BY s.TABLE_NAME, s.INDEX_NAME, s.SEQ_IN_INDEX

-- name: unkept
-- Storage engines that read rows stored elsewhere; MERGE itself documents that it keeps no key unique.
SELECT TABLE_NAME AS table_name, ENGINE AS engine FROM information_schema.TABLES
WHERE TABLE_SCHEMA = COALESCE(:schema, DATABASE())
    AND ENGINE IN ('MRG_MyISAM', 'FEDERATED', 'CONNECT', 'SPIDER')

-- name: foreign_keys
SELECT TABLE_NAME AS table_name, CONSTRAINT_NAME AS name, COLUMN_NAME AS column_name,
    NULLIF(REFERENCED_TABLE_SCHEMA, TABLE_SCHEMA) AS referred_schema,
    REFERENCED_TABLE_NAME AS referred, REFERENCED_COLUMN_NAME AS referred_column
FROM information_schema.KEY_COLUMN_USAGE
WHERE TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND REFERENCED_TABLE_NAME IS NOT NULL
ORDER BY TABLE_NAME, CONSTRAINT_NAME, ORDINAL_POSITION

-- name: checks
SELECT TABLE_NAME AS table_name, CHECK_CLAUSE AS clause
FROM information_schema.CHECK_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = COALESCE(:schema, DATABASE())

-- name: character_sets
SELECT COLLATION_NAME, CHARACTER_SET_NAME FROM information_schema.COLLATIONS

-- name: mariadb_rows
-- Not for a versioned table, whose count includes historical rows.
SELECT TABLE_ROWS FROM information_schema.TABLES
WHERE TABLE_TYPE = 'BASE TABLE' AND ENGINE = 'InnoDB'
    AND TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND TABLE_NAME = :name

-- name: sequences
-- Of columns whose default draws from a sequence, which MariaDB has since 10.3: nextval(`schema`.`name`).
SELECT COLUMN_NAME, COLUMN_DEFAULT FROM information_schema.COLUMNS
WHERE TABLE_NAME = :table AND TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND COLUMN_DEFAULT LIKE 'nextval(%'

-- name: routines
SELECT CASE WHEN SQL_DATA_ACCESS IN ('READS SQL DATA', 'MODIFIES SQL DATA')
    THEN concat('is declared ', SQL_DATA_ACCESS) ELSE 'is declared NOT DETERMINISTIC' END
FROM information_schema.ROUTINES
WHERE ROUTINE_TYPE = 'FUNCTION' AND ROUTINE_NAME = :name
    AND ROUTINE_SCHEMA = CASE WHEN :schema = '' THEN DATABASE() ELSE :schema END
    AND (IS_DETERMINISTIC = 'NO' OR SQL_DATA_ACCESS IN ('READS SQL DATA', 'MODIFIES SQL DATA'))

-- ── capture ──

-- name: cascades
SELECT r.CONSTRAINT_NAME AS name, k.TABLE_SCHEMA AS child_schema, k.TABLE_NAME AS child,
    k.REFERENCED_TABLE_SCHEMA AS parent_schema, k.REFERENCED_TABLE_NAME AS parent,
    k.COLUMN_NAME AS own, k.REFERENCED_COLUMN_NAME AS theirs, r.DELETE_RULE AS on_delete, r.UPDATE_RULE AS on_update
FROM information_schema.REFERENTIAL_CONSTRAINTS r
JOIN information_schema.KEY_COLUMN_USAGE k ON k.CONSTRAINT_SCHEMA = r.CONSTRAINT_SCHEMA
    AND k.CONSTRAINT_NAME = r.CONSTRAINT_NAME AND k.TABLE_NAME = r.TABLE_NAME
WHERE k.REFERENCED_TABLE_NAME IS NOT NULL
ORDER BY k.TABLE_SCHEMA, k.TABLE_NAME, r.CONSTRAINT_NAME, k.ORDINAL_POSITION

-- name: all_indexes
SELECT TABLE_SCHEMA AS home, TABLE_NAME AS name, INDEX_NAME AS index_name, COLUMN_NAME AS column_name
FROM information_schema.STATISTICS WHERE COLUMN_NAME IS NOT NULL
ORDER BY TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX

-- name: triggers
SELECT TRIGGER_SCHEMA AS `schema`, EVENT_OBJECT_TABLE AS name, TRIGGER_NAME AS `trigger`, ACTION_STATEMENT AS body
FROM information_schema.TRIGGERS ORDER BY 1, 2, 3

-- name: table_kind
-- One query per table: without a table's name the server would open all tables.
SELECT TABLE_TYPE AS kind, ENGINE AS engine
FROM information_schema.TABLES WHERE TABLE_SCHEMA = :schema AND TABLE_NAME = :name

-- name: views
SELECT TABLE_SCHEMA AS `schema`, TABLE_NAME AS name FROM information_schema.TABLES WHERE TABLE_TYPE = 'VIEW'

-- name: definitions
SELECT ROUTINE_NAME AS name, ROUTINE_DEFINITION AS text FROM information_schema.ROUTINES
WHERE ROUTINE_SCHEMA = DATABASE()
UNION ALL
SELECT TABLE_NAME, VIEW_DEFINITION FROM information_schema.VIEWS WHERE TABLE_SCHEMA = DATABASE()

-- name: changing_triggers
-- ON UPDATE of a column does nothing where the statement gives the column a value, as all of ours do.
SELECT TRIGGER_NAME FROM information_schema.TRIGGERS WHERE ACTION_TIMING = 'BEFORE'
    AND EVENT_MANIPULATION <> 'DELETE' AND EVENT_OBJECT_TABLE = :name
    AND EVENT_OBJECT_SCHEMA = coalesce(:schema, DATABASE())

-- ── writers ──

-- name: counted_changes
-- No sum: MySQL's counters pass below zero for a moment, and a sum beyond BIGINT UNSIGNED is error 1690 (seen on 9.7).
SELECT CONCAT_WS('/', COUNT_INSERT, COUNT_UPDATE, COUNT_DELETE) FROM performance_schema.table_io_waits_summary_by_table
WHERE OBJECT_TYPE = 'TABLE' AND OBJECT_SCHEMA = :schema AND OBJECT_NAME = :name

-- name: update_time
-- One query per table: without a table's name the server would open all tables.
SELECT COALESCE(CAST(UPDATE_TIME AS CHAR), '-') FROM information_schema.TABLES
WHERE TABLE_SCHEMA = :schema AND TABLE_NAME = :name AND TABLE_TYPE = 'BASE TABLE' AND ENGINE = 'InnoDB'

-- name: open_transactions
SELECT t.trx_id, COALESCE(p.USER, '') FROM information_schema.INNODB_TRX t
LEFT JOIN information_schema.PROCESSLIST p ON p.ID = t.trx_mysql_thread_id
WHERE t.trx_rows_modified > 0 AND t.trx_mysql_thread_id <> CONNECTION_ID()

-- name: rights_to_write
SELECT TABLE_SCHEMA, TABLE_NAME, GRANTEE, PRIVILEGE_TYPE FROM information_schema.TABLE_PRIVILEGES
WHERE PRIVILEGE_TYPE IN ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE') ORDER BY 1, 2, 3, 4

-- ── rights of this user ──

-- name: has_log
SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = :home AND TABLE_NAME = 'migrator_log'

-- name: granted
SELECT '' AS `schema`, '' AS name, PRIVILEGE_TYPE AS right_name FROM information_schema.USER_PRIVILEGES
UNION ALL SELECT TABLE_SCHEMA, '', PRIVILEGE_TYPE FROM information_schema.SCHEMA_PRIVILEGES
UNION ALL SELECT TABLE_SCHEMA, TABLE_NAME, PRIVILEGE_TYPE FROM information_schema.TABLE_PRIVILEGES
