-- The shop: accounts, a catalogue, orders with their lines, sign-in sessions. Loads on SQLite and on PostgreSQL.
-- Times are UTC.

CREATE TABLE users (
  id         INTEGER      NOT NULL PRIMARY KEY,
  email      VARCHAR(254) NOT NULL UNIQUE,
  name       VARCHAR(120) NOT NULL,
  phone      VARCHAR(30),
  created_at TIMESTAMP    NOT NULL
);

CREATE TABLE categories (
  id   VARCHAR(40) NOT NULL PRIMARY KEY,   -- what stands in the address of the page: 'electronics'
  name VARCHAR(80) NOT NULL UNIQUE
);

CREATE TABLE products (
  id          INTEGER        NOT NULL PRIMARY KEY,
  category_id VARCHAR(40)    NOT NULL REFERENCES categories (id),
  name        VARCHAR(120)   NOT NULL,
  price       NUMERIC(10, 2) NOT NULL CHECK (price >= 0),
  stock       INTEGER        NOT NULL CHECK (stock >= 0),
  image_url   VARCHAR(300)
);

CREATE TABLE orders (
  id         INTEGER        NOT NULL PRIMARY KEY,
  user_id    INTEGER        NOT NULL REFERENCES users (id),
  status     VARCHAR(20)    NOT NULL
             CHECK (status IN ('pending', 'processing', 'shipped', 'delivered', 'cancelled')),
  total      NUMERIC(12, 2) NOT NULL CHECK (total >= 0),
  created_at TIMESTAMP      NOT NULL
);

CREATE TABLE order_items (
  order_id   INTEGER        NOT NULL REFERENCES orders (id) ON DELETE CASCADE,
  product_id INTEGER        NOT NULL REFERENCES products (id),
  quantity   INTEGER        NOT NULL CHECK (quantity > 0),
  unit_price NUMERIC(10, 2) NOT NULL CHECK (unit_price >= 0),
  PRIMARY KEY (order_id, product_id)
);

CREATE TABLE sessions (
  id         VARCHAR(64) NOT NULL PRIMARY KEY,
  user_id    INTEGER     NOT NULL REFERENCES users (id) ON DELETE CASCADE,
  created_at TIMESTAMP   NOT NULL,
  expires_at TIMESTAMP   NOT NULL
);

CREATE INDEX orders_of_user ON orders (user_id, created_at);
CREATE INDEX orders_by_status ON orders (status, created_at);
CREATE INDEX products_of_category ON products (category_id, price);
CREATE INDEX order_items_of_product ON order_items (product_id);
CREATE INDEX sessions_of_user ON sessions (user_id);
