CREATE TABLE devices (
  id VARCHAR(12) NOT NULL PRIMARY KEY,
  name VARCHAR(40) NOT NULL
);
CREATE TABLE events (
  id VARCHAR(12) NOT NULL PRIMARY KEY,
  device_id VARCHAR(12) NOT NULL,
  event_type VARCHAR(20) NOT NULL,
  occurred_at TIMESTAMP NULL,
  reading NUMERIC(6, 2),
  FOREIGN KEY (device_id) REFERENCES devices (id)
);
INSERT INTO devices VALUES
  ('d_001', 'Boiler'),
  ('d_002', 'Roof'),
  ('d_003', 'Cellar');
INSERT INTO events VALUES
  ('e_abc', 'd_001', 'TEMP_HIGH', '2037-04-26 10:15:00', 88.50),
  ('e_abd', 'd_001', 'HEARTBEAT', '2037-04-26 10:14:55', NULL),
  ('e_abe', 'd_001', 'HEARTBEAT', '2037-04-26 10:09:55', NULL),
  ('e_abf', 'd_001', 'TEMP_HIGH', '2037-04-26 09:15:00', 86.00),
  ('e_abg', 'd_001', 'HEARTBEAT', '2037-04-26 09:14:59', NULL),
  ('e_abh', 'd_002', 'TEMP_HIGH', '2037-04-26 10:15:00', 71.25),
  ('e_abi', 'd_002', 'TEMP_HIGH', '2037-04-26 23:59:59', 70.00),
  ('e_abj', 'd_002', 'TEMP_HIGH', '2037-04-27 00:00:00', 69.75),
  ('e_abk', 'd_003', 'TEMP_HIGH', '2037-04-25 23:59:59', 65.00),
  ('e_abl', 'd_003', 'DOOR_OPEN', '2037-04-26 12:00:00', NULL),
  ('e_old', 'd_003', 'TEMP_HIGH', '2020-04-26 10:15:00', 90.00);
