CREATE TABLE users (
  id VARCHAR(20) NOT NULL PRIMARY KEY,
  name VARCHAR(40) NOT NULL
);
CREATE TABLE user_groups (
  id VARCHAR(20) NOT NULL PRIMARY KEY,
  name VARCHAR(40) NOT NULL
);
CREATE TABLE memberships (
  user_id VARCHAR(20) NOT NULL,
  group_id VARCHAR(20) NOT NULL,
  role VARCHAR(12) NOT NULL,
  joined_on DATE NOT NULL,
  PRIMARY KEY (user_id, group_id),
  FOREIGN KEY (user_id) REFERENCES users (id),
  FOREIGN KEY (group_id) REFERENCES user_groups (id)
);

INSERT INTO users VALUES
  ('u_001', 'Alice'),
  ('u_002', 'Bob'),
  ('u_003', 'Chidi'),
  ('u_004', 'Dana'),
  ('u_005', 'Emil');

INSERT INTO user_groups VALUES
  ('g_42', 'Climbers'),
  ('g_99', 'Chess'),
  ('g_7', 'Readers'),
  ('g_420', 'Cooks'),
  ('g_1', 'Nobody yet');

INSERT INTO memberships VALUES
  ('u_001', 'g_42', 'owner', '2026-01-10'),
  ('u_001', 'g_99', 'member', '2026-02-01'),
  ('u_002', 'g_42', 'member', '2026-01-09'),
  ('u_003', 'g_42', 'member', '2026-04-26'),
  ('u_003', 'g_420', 'owner', '2026-03-30'),
  ('u_004', 'g_42', 'member', '2026-01-10'),
  ('u_004', 'g_7', 'owner', '2025-12-31');
