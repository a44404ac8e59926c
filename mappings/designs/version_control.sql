CREATE TABLE users (
  username VARCHAR(40) NOT NULL PRIMARY KEY,
  full_name VARCHAR(60) NOT NULL,
  created_at TIMESTAMP NULL
);
CREATE TABLE follows (
  follower VARCHAR(40) NOT NULL,
  followed VARCHAR(40) NOT NULL,
  PRIMARY KEY (follower, followed),
  FOREIGN KEY (follower) REFERENCES users (username),
  FOREIGN KEY (followed) REFERENCES users (username)
);
CREATE TABLE repositories (
  owner VARCHAR(40) NOT NULL,
  name VARCHAR(40) NOT NULL,
  about VARCHAR(120),
  is_private BOOLEAN NOT NULL,
  PRIMARY KEY (owner, name),
  FOREIGN KEY (owner) REFERENCES users (username)
);
CREATE TABLE issues (
  owner VARCHAR(40) NOT NULL,
  repo VARCHAR(40) NOT NULL,
  number INTEGER NOT NULL,
  author VARCHAR(40) NOT NULL,
  status VARCHAR(10) NOT NULL,
  subject VARCHAR(80) NOT NULL,
  labels JSON,
  updated_at TIMESTAMP NULL,
  PRIMARY KEY (owner, repo, number),
  FOREIGN KEY (owner, repo) REFERENCES repositories (owner, name),
  FOREIGN KEY (author) REFERENCES users (username)
);
INSERT INTO users VALUES
  ('ada', 'Ada Reed', '2026-03-01 09:00:00'),
  ('bo', 'Bo Stone', '2026-03-02 10:30:00'),
  ('cleo', 'Cleo Lane', '2026-03-03 11:45:30');
INSERT INTO follows VALUES
  ('ada', 'cleo'),
  ('ada', 'bo'),
  ('bo', 'ada');
INSERT INTO repositories VALUES
  ('ada', 'atlas', 'Maps of everything', FALSE),
  ('ada', 'notes', NULL, TRUE),
  ('bo', 'atlas', 'A fork', FALSE);
INSERT INTO issues VALUES
  ('ada', 'atlas', 1, 'bo', 'open', 'Rivers are missing', '["data", "bug", "data"]', '2026-04-01 08:00:00'),
  ('ada', 'atlas', 2, 'cleo', 'closed', 'Spelling', '[]', '2026-04-02 08:00:00'),
  ('ada', 'atlas', 3, 'bo', 'open', 'Print a map', NULL, '2026-04-03 08:00:00'),
  ('bo', 'atlas', 1, 'ada', 'open', 'Merge upstream', '["bug"]', '2026-04-04 08:00:00');
