CREATE TABLE shops (
  id VARCHAR(12) NOT NULL PRIMARY KEY,
  name VARCHAR(40) NOT NULL,
  latitude NUMERIC(7, 4) NOT NULL,
  longitude NUMERIC(7, 4) NOT NULL
);
INSERT INTO shops VALUES
  ('s_001', 'Tower Kiosk', 35.6586, 139.7454),
  ('s_002', 'Gate Books', 35.6595, 139.7460),
  ('s_003', 'Mita Market', 35.6500, 139.7400),
  ('s_004', 'Across the Border', 35.6586, 139.7463),
  ('s_005', 'Garden Tea', 35.6612, 139.7454),
  ('s_006', 'Hill Bakery', 35.6540, 139.7454),
  ('s_007', 'Onarimon Noodles', 35.6640, 139.7530),
  ('s_008', 'Station Flowers', 35.6812, 139.7671),
  ('s_009', 'Iikura Bikes', 35.6580, 139.7420),
  ('s_010', 'Shibuya Records', 35.6595, 139.7005),
  ('s_011', 'Temple Gifts', 35.6595, 139.7440),
  ('s_012', 'Harbour Hats', -33.8570, 151.2152);
