CREATE TABLE metrics (
  server VARCHAR(20) NOT NULL,
  measured_on DATE NOT NULL,
  measured_at TIME NOT NULL,
  cpu NUMERIC(5, 2) NOT NULL,
  PRIMARY KEY (server, measured_on, measured_at)
);
INSERT INTO metrics VALUES
  ('server1', '2024-01-14', '23:59:30', 40.10),
  ('server1', '2024-01-15', '00:00:00', 39.80),
  ('server1', '2024-01-15', '14:30:00', 45.20),
  ('server1', '2024-01-15', '14:31:00', 47.00),
  ('server1', '2024-01-17', '08:00:00', 12.50),
  ('server2', '2024-01-15', '14:30:00', 88.00);
