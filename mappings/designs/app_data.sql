CREATE TABLE users (
  id INTEGER NOT NULL PRIMARY KEY,
  name VARCHAR(60) NOT NULL,
  email VARCHAR(120) NOT NULL
);
CREATE TABLE orders (
  id VARCHAR(12) NOT NULL PRIMARY KEY,
  user_id INTEGER NOT NULL,
  placed_on DATE NOT NULL,
  total NUMERIC(10, 2) NOT NULL,
  status VARCHAR(10) NOT NULL,
  flagged BOOLEAN NOT NULL,
  FOREIGN KEY (user_id) REFERENCES users (id)
);
CREATE TABLE order_items (
  order_id VARCHAR(12) NOT NULL,
  sku VARCHAR(20) NOT NULL,
  qty INTEGER NOT NULL,
  price NUMERIC(10, 2) NOT NULL,
  PRIMARY KEY (order_id, sku),
  FOREIGN KEY (order_id) REFERENCES orders (id)
);
INSERT INTO users VALUES
  (42, 'Asha', 'asha@example.com'),
  (43, 'Bela', 'bela@example.com'),
  (44, 'Chen', 'chen@example.com');
INSERT INTO orders VALUES
  ('abc123', 42, '2026-06-15', 99.95, 'shipped', FALSE),
  ('def456', 42, '2026-06-01', 25.00, 'pending', TRUE),
  ('ghi789', 42, '2025-12-24', 310.40, 'delivered', FALSE),
  ('jkl012', 42, '2026-06-15', 12.50, 'pending', FALSE),
  ('mno345', 43, '2026-06-20', 80.00, 'pending', FALSE),
  ('pqr678', 43, '2026-05-31', 45.10, 'shipped', FALSE),
  ('stu901', 43, '2025-11-02', 7.25, 'delivered', TRUE);
INSERT INTO order_items VALUES
  ('abc123', 'sku-1', 2, 40.00),
  ('abc123', 'sku-2', 1, 19.95),
  ('def456', 'sku-1', 1, 25.00),
  ('ghi789', 'sku-7', 4, 77.60),
  ('jkl012', 'sku-2', 1, 12.50),
  ('mno345', 'sku-1', 2, 40.00),
  ('pqr678', 'sku-9', 1, 45.10),
  ('stu901', 'sku-3', 1, 7.25);
