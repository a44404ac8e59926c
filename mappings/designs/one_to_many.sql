CREATE TABLE users (
  id VARCHAR(20) NOT NULL,
  name VARCHAR(40) NOT NULL,
  email VARCHAR(60) NOT NULL,
  created_on DATE NOT NULL,
  PRIMARY KEY (id)
);
CREATE TABLE addresses (
  user_id VARCHAR(20) NOT NULL,
  label VARCHAR(20) NOT NULL,
  line1 VARCHAR(60) NOT NULL,
  city VARCHAR(40) NOT NULL,
  zip VARCHAR(12),
  PRIMARY KEY (user_id, label),
  FOREIGN KEY (user_id) REFERENCES users (id)
);
CREATE TABLE orders (
  id VARCHAR(20) NOT NULL,
  user_id VARCHAR(20) NOT NULL,
  ordered_on DATE NOT NULL,
  total NUMERIC(10,2) NOT NULL,
  status VARCHAR(12) NOT NULL,
  PRIMARY KEY (id),
  FOREIGN KEY (user_id) REFERENCES users (id)
);

INSERT INTO users VALUES
  ('u_001', 'Alice', 'alice@example.com', '2025-11-02'),
  ('u_002', 'Bob', 'bob@example.com', '2026-01-15'),
  ('u_0010', 'Carol', 'carol@example.com', '2026-02-01'),
  ('u_003', 'Dai', 'dai@example.com', '2026-03-09'),
  ('u_004', 'Eve', 'eve@example.com', '2026-04-20');

INSERT INTO addresses VALUES
  ('u_001', 'home', '1-2-3 Shiba', 'Tokyo', '105-0011'),
  ('u_001', 'work', '4-5 Marunouchi', 'Tokyo', '100-0005'),
  ('u_002', 'home', '6 High Street', 'Leeds', NULL),
  ('u_0010', 'home', '7 Rue Haute', 'Lyon', '69001'),
  ('u_003', 'parents', '8 Queen Street', 'Cardiff', 'CF10 2GP');

INSERT INTO orders VALUES
  ('o_777', 'u_001', '2026-04-26', 149.90, 'PAID'),
  ('o_776', 'u_001', '2026-04-25', 20.00, 'SHIPPED'),
  ('o_775', 'u_001', '2026-04-25', 8.50, 'SHIPPED'),
  ('o_612', 'u_001', '2026-02-11', 310.00, 'DELIVERED'),
  ('o_590', 'u_001', '2025-12-24', 75.25, 'DELIVERED'),
  ('o_778', 'u_002', '2026-04-26', 12.00, 'PAID'),
  ('o_700', 'u_0010', '2026-04-01', 5.00, 'CANCELLED');
