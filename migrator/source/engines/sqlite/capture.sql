-- Tables of ours on SQLite, by name (Queries in source/engines/catalogue.py).

-- name: mark_table
CREATE TABLE IF NOT EXISTS {mark} (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    table_name TEXT NOT NULL DEFAULT '',      -- '' where a root is named
    image_before TEXT,                        -- JSON: column -> type:text, of UPDATE and DELETE
    image_after TEXT,                         -- the same, of INSERT and UPDATE
    root_entity TEXT,
    root_key TEXT,
    item_keys TEXT NOT NULL DEFAULT '[]',     -- JSON: item keys that the root had
    work_cursor TEXT NOT NULL DEFAULT '',     -- where the work on a mark of many roots goes on
    tries INTEGER NOT NULL DEFAULT 0,         -- how often it failed
    ready_at REAL NOT NULL DEFAULT 0,         -- times are seconds since 1970, by this machine's clock
    leased_until REAL NOT NULL DEFAULT 0,
    lease_owner TEXT,
    changed_at REAL NOT NULL DEFAULT ({now}),
    version INTEGER NOT NULL DEFAULT {version}
)
