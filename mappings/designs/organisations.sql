CREATE TABLE users (
  id VARCHAR(20) NOT NULL PRIMARY KEY,
  name VARCHAR(60) NOT NULL
);
CREATE TABLE organisations (
  id VARCHAR(20) NOT NULL PRIMARY KEY,
  name VARCHAR(60) NOT NULL
);
CREATE TABLE memberships (
  user_id VARCHAR(20) NOT NULL,
  org_id VARCHAR(20) NOT NULL,
  role VARCHAR(20) NOT NULL,
  PRIMARY KEY (user_id, org_id),
  FOREIGN KEY (user_id) REFERENCES users (id),
  FOREIGN KEY (org_id) REFERENCES organisations (id)
);
INSERT INTO users VALUES
  ('123', 'Alice'),
  ('124', 'Bob'),
  ('125', 'Carol');
INSERT INTO organisations VALUES
  ('456', 'Acme'),
  ('457', 'Globex'),
  ('458', 'Empty Ltd');
INSERT INTO memberships VALUES
  ('123', '456', 'admin'),
  ('123', '457', 'member'),
  ('124', '456', 'member');
