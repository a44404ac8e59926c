CREATE TABLE tenants (
  id VARCHAR(12) NOT NULL PRIMARY KEY,
  name VARCHAR(40) NOT NULL
);
CREATE TABLE nodes (
  tenant_id VARCHAR(12) NOT NULL,
  id INTEGER NOT NULL,
  parent_id INTEGER,
  slug VARCHAR(20) NOT NULL,
  name VARCHAR(40) NOT NULL,
  PRIMARY KEY (tenant_id, id),
  UNIQUE (tenant_id, parent_id, slug),
  FOREIGN KEY (tenant_id) REFERENCES tenants (id),
  FOREIGN KEY (tenant_id, parent_id) REFERENCES nodes (tenant_id, id)
);
INSERT INTO tenants VALUES ('acme', 'Acme Inc.'), ('acme2', 'Acme Holding'), ('zeta', 'Zeta Ltd.');
INSERT INTO nodes VALUES ('acme', 1, NULL, 'root', 'Acme Inc.');
INSERT INTO nodes VALUES ('acme', 2, 1, 'eng', 'Engineering');
INSERT INTO nodes VALUES ('acme', 3, 2, 'cloud', 'Cloud Team');
INSERT INTO nodes VALUES ('acme', 4, 3, 'aws', 'AWS Squad');
INSERT INTO nodes VALUES ('acme', 5, 1, 'sales', 'Sales');
INSERT INTO nodes VALUES ('acme', 6, 1, 'engineering', 'Engineering School');
INSERT INTO nodes VALUES ('acme2', 1, NULL, 'root', 'Acme Holding');
INSERT INTO nodes VALUES ('zeta', 1, NULL, 'root', 'Zeta Ltd.');
INSERT INTO nodes VALUES ('zeta', 2, 1, 'eng', 'Engines');
INSERT INTO nodes VALUES ('zeta', 3, 2, 'cloud', 'Weather Lab');
