CREATE TABLE alarms (
  id VARCHAR(32) NOT NULL PRIMARY KEY,
  name VARCHAR(60) NOT NULL,
  family VARCHAR(16) NOT NULL,
  severity VARCHAR(10) NOT NULL,
  enabled BOOLEAN NOT NULL,
  changed_at TIMESTAMP NOT NULL
);
CREATE TABLE notifications (
  alarm_id VARCHAR(32) NOT NULL,
  channel VARCHAR(40) NOT NULL,
  PRIMARY KEY (alarm_id, channel),
  FOREIGN KEY (alarm_id) REFERENCES alarms (id)
);
CREATE TABLE resources (
  alarm_id VARCHAR(32) NOT NULL,
  name VARCHAR(60) NOT NULL,
  threshold INTEGER NOT NULL,
  PRIMARY KEY (alarm_id, name),
  FOREIGN KEY (alarm_id) REFERENCES alarms (id)
);
CREATE TABLE events (
  log VARCHAR(60) NOT NULL,
  id VARCHAR(20) NOT NULL,
  message VARCHAR(200) NOT NULL,
  at TIMESTAMP NOT NULL,
  PRIMARY KEY (log, id)
);
INSERT INTO alarms VALUES
  ('A1', 'Errors of the shop', 'logs', 'critical', TRUE, '2036-01-02 03:04:05'),
  ('A2', 'Slow answers', 'metrics', 'warning', FALSE, '2036-01-03 00:00:00'),
  ('A3', 'No answers', 'metrics', 'critical', TRUE, '2036-01-03 12:00:00');
INSERT INTO notifications VALUES
  ('A1', 'pager'),
  ('A1', 'mail:ops'),
  ('A3', 'pager');
INSERT INTO resources VALUES
  ('A1', 'lambda:checkout', 5),
  ('A1', 'lambda:search', 20),
  ('A2', 'api', 900);
INSERT INTO events VALUES
  ('checkout', 'e-1', 'started', '2036-01-02 03:00:00'),
  ('checkout', 'e-2', 'payment failed', '2036-01-02 03:04:00'),
  ('search', 'e-3', 'started', '2036-01-02 03:00:00');
