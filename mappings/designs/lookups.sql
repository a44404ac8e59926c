CREATE TABLE currencies (
  code VARCHAR(3) NOT NULL PRIMARY KEY,
  name VARCHAR(40) NOT NULL,
  digits INTEGER NOT NULL
);
CREATE TABLE countries (
  code VARCHAR(2) NOT NULL PRIMARY KEY,
  name VARCHAR(60) NOT NULL,
  currency VARCHAR(3),
  is_eu BOOLEAN NOT NULL,
  FOREIGN KEY (currency) REFERENCES currencies (code)
);
CREATE TABLE carriers (
  id INTEGER NOT NULL PRIMARY KEY,
  label VARCHAR(40) NOT NULL,
  url VARCHAR(80),
  rank_no INTEGER NOT NULL
);
INSERT INTO currencies VALUES
  ('EUR', 'Euro', 2),
  ('JPY', 'Yen', 0),
  ('SEK', 'Krona', 2);
INSERT INTO countries VALUES
  ('AT', 'Österreich', 'EUR', TRUE),
  ('JP', '日本', 'JPY', FALSE),
  ('SE', 'Sverige', 'SEK', TRUE),
  ('AQ', 'Antarctica', NULL, FALSE);
INSERT INTO carriers VALUES
  (1, 'Post', NULL, 2),
  (2, 'Parcel & Co', 'https://parcel.example', 1);
