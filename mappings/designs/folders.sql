CREATE TABLE folders (
  id INTEGER NOT NULL PRIMARY KEY,
  owner_id VARCHAR(20) NOT NULL,
  parent_id INTEGER,
  name VARCHAR(60) NOT NULL,
  FOREIGN KEY (parent_id) REFERENCES folders (id)
);
INSERT INTO folders VALUES
  (1, 'user123', NULL, 'documents'),
  (2, 'user123', 1, 'projects'),
  (3, 'user123', 2, '2024'),
  (4, 'user123', 2, '2023'),
  (5, 'user123', 1, 'projects-old'),
  (6, 'user123', NULL, 'music'),
  (7, 'user124', NULL, 'documents');
