CREATE TABLE users (
  id INTEGER NOT NULL PRIMARY KEY,
  email VARCHAR(120) NOT NULL,
  name VARCHAR(60) NOT NULL,
  active BOOLEAN NOT NULL,
  created_at TIMESTAMP NULL
);
CREATE TABLE products (
  id VARCHAR(20) NOT NULL PRIMARY KEY,
  name VARCHAR(60) NOT NULL,
  price NUMERIC(10, 2) NOT NULL,
  inventory INTEGER NOT NULL
);
CREATE TABLE orders (
  id INTEGER NOT NULL PRIMARY KEY,
  user_id INTEGER NOT NULL,
  total NUMERIC(10, 2) NOT NULL,
  status VARCHAR(20) NOT NULL,
  created_at TIMESTAMP NULL,
  FOREIGN KEY (user_id) REFERENCES users (id)
);
CREATE TABLE order_items (
  order_id INTEGER NOT NULL,
  item_id VARCHAR(10) NOT NULL,
  product_id VARCHAR(20) NOT NULL,
  quantity INTEGER NOT NULL,
  price NUMERIC(10, 2) NOT NULL,
  PRIMARY KEY (order_id, item_id),
  FOREIGN KEY (order_id) REFERENCES orders (id),
  FOREIGN KEY (product_id) REFERENCES products (id)
);
INSERT INTO users VALUES
  (12345, 'alice@example.com', 'Alice', TRUE, '2023-11-02 10:00:00'),
  (456, 'bob@example.com', 'Bob', TRUE, '2023-12-24 08:15:00'),
  (23456, 'carol@example.com', 'Carol', FALSE, '2024-01-02 20:30:00');
INSERT INTO products VALUES
  ('P100', 'Desk Lamp', 24.50, 80),
  ('P200', 'Notebook', 3.20, 1200);
INSERT INTO orders VALUES
  (98765, 12345, 52.20, 'pending', '2024-01-15 09:30:00'),
  (98766, 12345, 3.20, 'pending', '2024-01-15 07:00:00'),
  (98801, 12345, 24.50, 'shipped', '2024-01-20 16:45:00'),
  (97001, 12345, 6.40, 'delivered', '2023-12-01 12:00:00'),
  (98770, 456, 24.50, 'pending', '2024-01-16 11:11:11');
INSERT INTO order_items VALUES
  (98765, '001', 'P100', 2, 24.50),
  (98765, '002', 'P200', 1, 3.20),
  (98766, '001', 'P200', 1, 3.20),
  (98801, 'A1', 'P100', 1, 24.50),
  (97001, '001', 'P200', 2, 3.20),
  (98770, '001', 'P100', 1, 24.50);
