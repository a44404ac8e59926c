CREATE TABLE users (
  id VARCHAR(20) NOT NULL PRIMARY KEY,
  email VARCHAR(120) NOT NULL UNIQUE,
  name VARCHAR(60) NOT NULL,
  created_at TIMESTAMP NULL
);
CREATE TABLE categories (
  id VARCHAR(40) NOT NULL PRIMARY KEY,
  name VARCHAR(60) NOT NULL
);
CREATE TABLE products (
  id VARCHAR(20) NOT NULL PRIMARY KEY,
  category_id VARCHAR(40) NOT NULL,
  name VARCHAR(60) NOT NULL,
  price NUMERIC(7, 2) NOT NULL,
  stock INTEGER NOT NULL,
  image_url VARCHAR(120),
  FOREIGN KEY (category_id) REFERENCES categories (id)
);
CREATE TABLE orders (
  id VARCHAR(20) NOT NULL PRIMARY KEY,
  user_id VARCHAR(20) NOT NULL,
  status VARCHAR(20) NOT NULL,
  total NUMERIC(10, 2) NOT NULL,
  created_at TIMESTAMP NULL,
  FOREIGN KEY (user_id) REFERENCES users (id)
);
CREATE TABLE order_items (
  order_id VARCHAR(20) NOT NULL,
  product_id VARCHAR(20) NOT NULL,
  quantity INTEGER NOT NULL,
  unit_price NUMERIC(7, 2) NOT NULL,
  PRIMARY KEY (order_id, product_id),
  FOREIGN KEY (order_id) REFERENCES orders (id),
  FOREIGN KEY (product_id) REFERENCES products (id)
);
CREATE TABLE sessions (
  id VARCHAR(20) NOT NULL PRIMARY KEY,
  user_id VARCHAR(20) NOT NULL,
  expires_at TIMESTAMP NULL,
  FOREIGN KEY (user_id) REFERENCES users (id)
);
INSERT INTO users VALUES
  ('u-001', 'alice@example.com', 'Alice Johnson', '2026-01-15 08:00:00'),
  ('u-002', 'bob@example.com', 'Bob Stone', '2026-02-01 09:30:00'),
  ('u-003', 'carol@example.com', 'Carol Reed', '2026-06-01 12:00:00');
INSERT INTO categories VALUES
  ('books', 'Books'),
  ('electronics', 'Electronics');
INSERT INTO products VALUES
  ('p-555', 'electronics', 'Mechanical Keyboard', 74.99, 230, NULL),
  ('p-556', 'electronics', 'Monitor', 149.99, 12, 'https://img.example.com/p-556.jpg'),
  ('p-557', 'electronics', 'USB Cable', 9.99, 900, 'https://img.example.com/p-557.jpg'),
  ('p-558', 'electronics', 'Laptop', 1299.00, 4, NULL),
  ('p-600', 'books', 'Keys and Sorting', 39.50, 41, NULL);
INSERT INTO orders VALUES
  ('o-701', 'u-001', 'delivered', 1299.00, '2025-12-20 18:05:00'),
  ('o-789', 'u-001', 'shipped', 149.99, '2026-06-10 14:32:00'),
  ('o-790', 'u-001', 'pending', 9.99, '2026-06-12 09:00:00'),
  ('o-791', 'u-002', 'processing', 84.98, '2026-06-12 09:00:05'),
  ('o-792', 'u-002', 'cancelled', 39.50, '2026-05-01 07:00:00'),
  ('o-793', 'u-001', 'pending', 19.98, '2026-06-12 09:00:00');
INSERT INTO order_items VALUES
  ('o-701', 'p-558', 1, 1299.00),
  ('o-789', 'p-555', 2, 74.99),
  ('o-790', 'p-557', 1, 9.99),
  ('o-791', 'p-555', 1, 74.99),
  ('o-791', 'p-557', 1, 9.99),
  ('o-792', 'p-600', 1, 39.50),
  ('o-793', 'p-557', 2, 9.99);
INSERT INTO sessions VALUES
  ('s-100', 'u-001', '2036-06-10 14:00:00'),
  ('s-101', 'u-002', '2021-06-10 14:00:00');
