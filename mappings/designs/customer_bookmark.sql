CREATE TABLE customers (
  id UUID NOT NULL PRIMARY KEY,
  email VARCHAR(80) NOT NULL,
  full_name VARCHAR(60) NOT NULL,
  user_preferences JSON NOT NULL,
  created_at TIMESTAMP(3) NULL,
  updated_at TIMESTAMP(3) NULL,
  UNIQUE (email)
);
CREATE TABLE bookmarks (
  customer_id UUID NOT NULL,
  url VARCHAR(200) NOT NULL,
  folder VARCHAR(40),
  title VARCHAR(80) NOT NULL,
  description VARCHAR(200),
  created_at TIMESTAMP(3) NULL,
  updated_at TIMESTAMP(3) NULL,
  PRIMARY KEY (customer_id, url),
  FOREIGN KEY (customer_id) REFERENCES customers (id)
);
INSERT INTO customers VALUES
  ('123e4567-e89b-42d3-a456-426655440000', 'shirley@example.net', 'Shirley Rodriguez', '{}',
    '2020-03-25 09:16:41.123', '2020-03-26 10:20:30.500'),
  ('321e4567-e89b-42d3-a456-426655440001', 'zhang@example.net', 'Zhang Wei',
    '{"sort": "date", "language": "en", "sortDirection": "ascending"}', '2020-03-25 11:00:00.000', NULL),
  ('987e4567-e89b-42d3-a456-426655440002', 'mary@example.net', 'Mary Major', '{}', '2020-03-27 08:00:00.001', NULL);
INSERT INTO bookmarks VALUES
  ('123e4567-e89b-42d3-a456-426655440000', 'https://aws.amazon.com', 'Cloud', 'Amazon Web Services',
    'Where the servers are', '2020-03-25 09:17:00.250', '2020-03-25 09:18:00.000'),
  ('123e4567-e89b-42d3-a456-426655440000', 'https://console.aws.amazon.com', 'Cloud', 'Console', NULL,
    '2020-03-25 09:20:00.000', NULL),
  ('123e4567-e89b-42d3-a456-426655440000', 'http://example.com/old', NULL, 'An old page', NULL,
    '2020-03-25 09:21:00.000', NULL),
  ('123e4567-e89b-42d3-a456-426655440000', 'https://docs.python.org', 'Tools', 'Python', NULL,
    '2020-03-25 09:22:00.000', NULL),
  ('321e4567-e89b-42d3-a456-426655440001', 'https://aws.amazon.com', 'Work', 'AWS', NULL,
    '2020-03-25 11:05:00.000', NULL),
  ('321e4567-e89b-42d3-a456-426655440001', 'https://docs.python.org', 'Cloud', 'Python docs', NULL,
    '2020-03-25 11:06:00.000', NULL);
