CREATE TABLE users (
  id VARCHAR(20) NOT NULL PRIMARY KEY,
  name VARCHAR(60) NOT NULL
);
CREATE TABLE orders (
  id VARCHAR(20) NOT NULL PRIMARY KEY,
  user_id VARCHAR(20) NOT NULL,
  status VARCHAR(20) NOT NULL,
  total NUMERIC(10, 2) NOT NULL,
  created_at TIMESTAMP NULL,
  FOREIGN KEY (user_id) REFERENCES users (id)
);
INSERT INTO users VALUES
  ('u-001', 'Alice Johnson'),
  ('u-002', 'Bob Stone');
INSERT INTO orders VALUES
  ('o-701', 'u-001', 'delivered', 1299.00, '2025-12-20 18:05:00'),
  ('o-789', 'u-001', 'shipped', 149.99, '2026-06-10 14:32:00'),
  ('o-790', 'u-001', 'pending', 9.99, '2026-06-12 09:00:00'),
  ('o-793', 'u-001', 'pending', 20.00, '2026-06-12 09:00:00'),
  ('o-794', 'u-001', 'pending', 20.00, '2026-06-13 10:00:00'),
  ('o-791', 'u-002', 'processing', 84.98, '2026-06-12 09:00:05');
