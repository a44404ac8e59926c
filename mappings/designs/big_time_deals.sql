CREATE TABLE brands (
  name VARCHAR(40) NOT NULL PRIMARY KEY,
  logo_url VARCHAR(120)
);
CREATE TABLE categories (
  name VARCHAR(40) NOT NULL PRIMARY KEY
);
CREATE TABLE deals (
  id VARCHAR(27) NOT NULL PRIMARY KEY,
  title VARCHAR(80) NOT NULL,
  link VARCHAR(120) NOT NULL,
  price NUMERIC(10, 2) NOT NULL,
  brand VARCHAR(40) NOT NULL,
  category VARCHAR(40) NOT NULL,
  created_at TIMESTAMP NOT NULL,
  FOREIGN KEY (brand) REFERENCES brands (name),
  FOREIGN KEY (category) REFERENCES categories (name)
);
CREATE TABLE pages (
  name VARCHAR(20) NOT NULL PRIMARY KEY
);
CREATE TABLE featured (
  page VARCHAR(20) NOT NULL,
  position INTEGER NOT NULL,
  deal_id VARCHAR(27) NOT NULL,
  PRIMARY KEY (page, position),
  FOREIGN KEY (page) REFERENCES pages (name),
  FOREIGN KEY (deal_id) REFERENCES deals (id)
);
CREATE TABLE brand_watchers (
  brand VARCHAR(40) NOT NULL,
  username VARCHAR(40) NOT NULL,
  PRIMARY KEY (brand, username),
  FOREIGN KEY (brand) REFERENCES brands (name)
);
CREATE TABLE messages (
  id VARCHAR(27) NOT NULL PRIMARY KEY,
  username VARCHAR(40) NOT NULL,
  subject VARCHAR(80) NOT NULL,
  state VARCHAR(6) NOT NULL,
  created_at TIMESTAMP NOT NULL
);
INSERT INTO brands VALUES
  ('Apple', 'https://img.example.com/apple.png'),
  ('Lego', NULL);
INSERT INTO categories VALUES
  ('Electronics'),
  ('Toys');
INSERT INTO deals VALUES
  ('d-1', 'Phone, 10 off', 'https://shop.example.com/1', 489.00, 'Apple', 'Electronics', '2026-02-27 09:00:00'),
  ('d-2', 'Castle', 'https://shop.example.com/2', 79.95, 'Lego', 'Toys', '2026-03-01 18:30:00'),
  ('d-3', 'Headphones', 'https://shop.example.com/3', 99.50, 'Apple', 'Electronics', '2026-03-02 08:15:00'),
  ('d-4', 'Watch', 'https://shop.example.com/4', 219.00, 'Apple', 'Electronics', '2026-03-02 12:00:00'),
  ('d-5', 'Train', 'https://shop.example.com/5', 129.00, 'Lego', 'Toys', '2026-04-01 10:00:00');
INSERT INTO pages VALUES
  ('FRONTPAGE'),
  ('EDITORSCHOICE');
INSERT INTO featured VALUES
  ('FRONTPAGE', 1, 'd-4'),
  ('FRONTPAGE', 2, 'd-2'),
  ('EDITORSCHOICE', 1, 'd-5');
INSERT INTO brand_watchers VALUES
  ('Apple', 'bo'),
  ('Apple', 'ada'),
  ('Lego', 'ada');
INSERT INTO messages VALUES
  ('m-1', 'ada', 'A new deal of Apple', 'unread', '2026-03-02 08:15:01'),
  ('m-2', 'bo', 'A new deal of Apple', 'read', '2026-03-02 08:15:01'),
  ('m-3', 'ada', 'A new deal of Lego', 'read', '2026-03-01 18:30:01');
