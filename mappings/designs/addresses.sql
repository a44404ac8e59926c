CREATE TABLE users (
  id INTEGER NOT NULL PRIMARY KEY,
  name VARCHAR(60) NOT NULL
);
CREATE TABLE addresses (
  user_id INTEGER NOT NULL,
  kind VARCHAR(20) NOT NULL,
  street VARCHAR(80) NOT NULL,
  PRIMARY KEY (user_id, kind),
  FOREIGN KEY (user_id) REFERENCES users (id)
);
INSERT INTO users VALUES
  (123, 'Alice'),
  (124, 'Bob'),
  (1234, 'Carol');
INSERT INTO addresses VALUES
  (123, 'home', '123 Main St'),
  (123, 'work', '456 Office Blvd'),
  (123, 'homestead', '9 Farm Lane'),
  (1234, 'home', '7 Lake Road');
