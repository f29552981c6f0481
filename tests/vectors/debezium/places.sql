CREATE EXTENSION postgis;
CREATE TABLE places (id bigint PRIMARY KEY, at geometry(Point, 4326), area geometry, spot geography(Point, 4326));
INSERT INTO places VALUES
  (1, ST_SetSRID(ST_MakePoint(13.4, 52.5), 4326), 'POLYGON((0 0, 4 0, 4 3, 0 0))', ST_MakePoint(2.35, 48.86)::geography),
  (2, NULL, ST_GeomFromText('LINESTRING Z (0 0 1, 1 1 2)', 25833), NULL),
  (3, ST_SetSRID(ST_MakePoint(-0.1, 51.5), 4326), 'GEOMETRYCOLLECTION EMPTY', ST_MakePoint(0, 0)::geography);
