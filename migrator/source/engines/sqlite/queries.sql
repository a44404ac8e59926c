-- Queries of the catalogue of SQLite, by name (Queries in source/engines/catalogue.py).

-- ── tables ──

-- name: columns
SELECT name, type, dflt_value, hidden FROM pragma_table_xinfo(:table)

-- name: views
SELECT name FROM sqlite_master WHERE type = 'view'

-- name: not_of_rows
SELECT name, type FROM pragma_table_list WHERE schema = 'main' AND type IN ('shadow', 'virtual')

-- name: unique_columns
SELECT i.name, c.name FROM pragma_index_list(:table) i JOIN pragma_index_info(i.name) c
WHERE i."unique" = 1 AND i.partial = 0 AND i.origin <> 'pk' ORDER BY i.seq DESC, c.seqno

-- name: unique_indexes
SELECT i.name, i.partial, c.name AS column_name, c.coll, s.sql, t.sql AS table_sql
FROM pragma_index_list(:table) i JOIN pragma_index_xinfo(i.name) c ON c.key = 1
LEFT JOIN sqlite_master s ON s.type = 'index' AND s.name = i.name
JOIN sqlite_master t ON t.type = 'table' AND t.name = :table
WHERE i."unique" = 1 ORDER BY i.seq DESC, c.seqno

-- name: foreign_keys
-- SQLAlchemy does not read the actions of a foreign key that is declared with its column.
SELECT m.name AS child, f.id AS id, f."table" AS parent, f."from" AS own, f."to" AS theirs,
    f.on_delete AS on_delete, f.on_update AS on_update
FROM sqlite_master m JOIN pragma_foreign_key_list(m.name) f WHERE m.type = 'table' ORDER BY m.name, f.id, f.seq

-- ── capture ──

-- name: triggers
SELECT tbl_name AS name, name AS trigger_name, sql AS text FROM sqlite_master WHERE type = 'trigger' ORDER BY 1, 2

-- name: master
SELECT name, type, sql FROM sqlite_master

-- name: definitions
SELECT name, sql FROM sqlite_master WHERE type = 'view'

-- name: changing_triggers
-- No trigger changes what is being written; one that updates its own table does so afterwards.
SELECT name FROM sqlite_master WHERE type = 'trigger' AND lower(tbl_name) = lower(:name)
    AND :schema IS NULL AND lower(sql) LIKE '%update%' || lower(:name) || '%set%'
