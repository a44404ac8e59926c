CREATE TABLE nodes (
  id INTEGER NOT NULL PRIMARY KEY,
  parent_id INTEGER,
  slug VARCHAR(20) NOT NULL,
  name VARCHAR(40) NOT NULL,
  UNIQUE (parent_id, slug),
  FOREIGN KEY (parent_id) REFERENCES nodes (id)
);
INSERT INTO nodes VALUES (1, NULL, 'root', 'Acme Inc.');
INSERT INTO nodes VALUES (2, 1, 'eng', 'Engineering');
INSERT INTO nodes VALUES (3, 2, 'cloud', 'Cloud Team');
INSERT INTO nodes VALUES (4, 3, 'aws', 'AWS Squad');
INSERT INTO nodes VALUES (5, 1, 'sales', 'Sales');
INSERT INTO nodes VALUES (6, 1, 'engineering', 'Engineering School');
INSERT INTO nodes VALUES (7, 5, 'cloud', 'Cloud Sales');
INSERT INTO nodes VALUES (8, 2, 'data', 'Data Team');
