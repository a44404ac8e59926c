CREATE TABLE customers (
  username VARCHAR(40) NOT NULL PRIMARY KEY,
  email VARCHAR(80) NOT NULL UNIQUE,
  name VARCHAR(60) NOT NULL
);
CREATE TABLE addresses (
  username VARCHAR(40) NOT NULL,
  label VARCHAR(20) NOT NULL,
  street VARCHAR(80) NOT NULL,
  postal_code VARCHAR(12) NOT NULL,
  country VARCHAR(40),
  PRIMARY KEY (username, label),
  FOREIGN KEY (username) REFERENCES customers (username)
);
CREATE TABLE orders (
  id VARCHAR(27) NOT NULL PRIMARY KEY,
  username VARCHAR(40) NOT NULL,
  status VARCHAR(12) NOT NULL,
  amount NUMERIC(10, 2) NOT NULL,
  created_at TIMESTAMP NULL,
  FOREIGN KEY (username) REFERENCES customers (username)
);
CREATE TABLE order_items (
  order_id VARCHAR(27) NOT NULL,
  item_id VARCHAR(27) NOT NULL,
  description VARCHAR(80) NOT NULL,
  price NUMERIC(10, 2) NOT NULL,
  PRIMARY KEY (order_id, item_id),
  FOREIGN KEY (order_id) REFERENCES orders (id)
);
INSERT INTO customers VALUES
  ('ada', 'ada@example.com', 'Ada Reed'),
  ('bo', 'bo@example.com', 'Bo Stone'),
  ('cleo', 'cleo@example.com', 'Cleo Lane');
INSERT INTO addresses VALUES
  ('ada', 'Home', '111 1st St', '68029', 'USA'),
  ('ada', 'Parents, in summer', '5 Lake Rd', '10435', NULL),
  ('bo', 'Home', '9 Low Rd', '1010', 'Austria');
INSERT INTO orders VALUES
  ('1VrgXBQ0VCshuQUnh1HrDIHQNwY', 'ada', 'PLACED', 67.43, '2026-05-01 10:00:00'),
  ('1VwVAvJk1GvBFfpTAjm0KG7Cg9d', 'ada', 'SHIPPED', 12.43, '2026-05-02 11:30:00'),
  ('1VxHFmkLVZ5sIjbFbCkMDbBqJxs', 'bo', 'CANCELLED', 99.00, '2026-05-03 09:15:00');
INSERT INTO order_items VALUES
  ('1VrgXBQ0VCshuQUnh1HrDIHQNwY', '1Vrgi1', 'Go kart', 55.00),
  ('1VrgXBQ0VCshuQUnh1HrDIHQNwY', '1Vrgi2', 'Helmet', 12.43),
  ('1VwVAvJk1GvBFfpTAjm0KG7Cg9d', '1Vrgi2', 'Helmet', 12.43);
