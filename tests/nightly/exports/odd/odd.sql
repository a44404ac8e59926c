-- Names and values that TypeScript could take for something else: reserved words, quotes, template literals, ends of comments.
CREATE TABLE odd (
  "_1st" INTEGER NOT NULL PRIMARY KEY,
  "class" TEXT NOT NULL,
  "its" TEXT,
  "groesse" NUMERIC(8, 2) NOT NULL,
  "quoted" TEXT,
  "backslash" TEXT,
  "end" TEXT,
  "delete" TEXT
);
INSERT INTO odd VALUES
  (1, 'a${b}', 'q', 1.5, '`${x}`', '\n', '*/', NULL),
  (2, '`', NULL, 20, 'ü#', 'n', NULL, '"'),
  (3, '</script>', '', 99999.99, NULL, '', '', '${}');
CREATE TABLE filtered (id INTEGER NOT NULL PRIMARY KEY, word TEXT, code CHAR(1), price NUMERIC(8, 2) NOT NULL, sold BOOLEAN,
  moment TIMESTAMP NOT NULL, day DATE NOT NULL, zoned TEXT NOT NULL, lat NUMERIC(9, 6) NOT NULL, lng NUMERIC(9, 6) NOT NULL);
INSERT INTO filtered VALUES
  (1, ' Größe#1% ', 'P', 0.5, 1, '2026-06-10 14:32:00.123456', '2026-06-10', '2026-06-10T23:32:00-05:30', 35.6586, 139.7454),
  (2, 'ǅİ#ß', 'S', 1234.5, 0, '1999-12-31 23:59:59', '2000-02-29', '1969-12-31 23:59:59.5+00', -90, -180),
  (3, NULL, NULL, 0, NULL, '2026-01-01 00:00:00', '0999-01-01', '2026-03-01T00:00:00+14:00', 0, 0),
  (4, '😀～', 'P', 99999.99, 1, '2026-01-01 00:00:00', '2026-01-01', '2026-03-01T00:00:00Z', 90, 180);
