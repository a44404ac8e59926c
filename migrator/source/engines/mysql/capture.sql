-- Tables and triggers of ours on MariaDB and MySQL, by name (Queries in source/engines/catalogue.py).

-- name: mark_table
CREATE TABLE IF NOT EXISTS {mark} (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    table_name VARCHAR(255) NOT NULL DEFAULT '' COMMENT 'schema.table; empty where a root is named',
    image_before LONGTEXT COMMENT 'JSON: column -> type:text, of UPDATE and DELETE',
    image_after LONGTEXT COMMENT 'the same, of INSERT and UPDATE',
    root_entity VARCHAR(255),
    root_key LONGTEXT,
    item_keys LONGTEXT COMMENT 'JSON: item keys that the root had',
    work_cursor LONGTEXT COMMENT 'where the work on a mark of many roots goes on',
    tries INT NOT NULL DEFAULT 0 COMMENT 'how often it failed',
    ready_at DOUBLE NOT NULL DEFAULT 0 COMMENT 'times are seconds since 1970 by the clock of this server',
    leased_until DOUBLE NOT NULL DEFAULT 0,
    lease_owner VARCHAR(255),
    changed_at DOUBLE NOT NULL,
    version SMALLINT NOT NULL DEFAULT {version}
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin

-- name: by_index
-- A missing index (the server drops its own when the service creates another) must not fail the service's statement:
-- without it more rows may be locked, and `status` says stale.
BEGIN
DECLARE migrator_without INT DEFAULT 0;
DECLARE migrator_none INT;
BEGIN
DECLARE CONTINUE HANDLER FOR 1176 SET migrator_without = 1;
SELECT COUNT(*) INTO migrator_none FROM {indexed} WHERE FALSE;
END;
IF migrator_without THEN
{without}ELSE
{with_index}END IF;
END;

-- name: row_by_row
-- An INSERT … VALUES for each row: one with SELECT would block all other writers (see MysqlDdl._body).
BEGIN
DECLARE migrator_done INT DEFAULT 0;
DECLARE migrator_image LONGTEXT CHARACTER SET utf8mb4;
DECLARE migrator_rows CURSOR FOR
{select};
DECLARE CONTINUE HANDLER FOR NOT FOUND SET migrator_done = 1;
OPEN migrator_rows;
migrator_each: LOOP
    FETCH migrator_rows INTO migrator_image;
    IF migrator_done THEN LEAVE migrator_each; END IF;
    {insert};
END LOOP;
CLOSE migrator_rows;
END;
