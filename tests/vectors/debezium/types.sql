CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TABLE types (
    id bigint PRIMARY KEY, small smallint, whole integer, good boolean, single real, double double precision,
    price numeric(10, 2), free numeric, paid money, word text, code varchar(10), padded char(5), day date,
    at timestamp, at_ms timestamp(3), at_zone timestamptz, clock time, clock_ms time(3), clock_zone timetz,
    span interval, uid uuid, doc json, docb jsonb, raw bytea, feels mood, place point, numbers int[], words text[],
    prices numeric(10, 2)[], address inet, markup xml, bits bit(5), object oid, valid int4range,
    long text, long_raw bytea, long_numbers int[], given text DEFAULT 'none'
);
ALTER TABLE types ALTER long SET STORAGE EXTERNAL, ALTER long_raw SET STORAGE EXTERNAL, ALTER long_numbers SET STORAGE EXTERNAL;
INSERT INTO types VALUES (
    1, -2, 2147483647, true, 1.5, 0.1, 12345678.91, 123456789012345678901234.5678, 12.34, 'ä "x"', 'vc', 'c', '2026-02-03',
    '2026-02-03 04:05:06.123456', '2026-02-03 04:05:06.123', '2026-02-03 04:05:06.123456+02', '04:05:06.123456',
    '04:05:06.123', '04:05:06+02', '1 day 3 hours', 'bb3e6c1a-0000-4000-8000-00000000000a', '{"a": 1}', '{"b": 2}',
    '\x00ff10', 'ok', '(1.5,-2)', '{1,2,NULL}', '{a,NULL}', '{1.25,2}', '10.0.0.1', '<a/>', B'10101', 4000000000, '[1,5)',
    repeat('t', 2100), decode(repeat('ab', 2100), 'hex'), (SELECT array_agg(n * 7) FROM generate_series(1, 600) n), 'given'
);
INSERT INTO types (id, given) VALUES (2, NULL);
INSERT INTO types (id, price, free, day, at, at_zone, clock) VALUES
    (3, -99999999.99, -12.5, '0001-01-01', '1582-10-15', '1582-10-15 00:00+00', '00:00'),
    (4, 0, 1e20, '9999-12-31', '9999-12-31 23:59:59.999999', '9999-12-31 23:59:59.999999+00', '23:59:59.999999');
-- What no type here holds.
INSERT INTO types (id, day) VALUES (100, 'infinity');
INSERT INTO types (id, at) VALUES (101, '-infinity');
INSERT INTO types (id, at_zone) VALUES (102, 'infinity');
INSERT INTO types (id, at_zone) VALUES (103, '1500-01-01 12:00+00');
INSERT INTO types (id, at, day) VALUES (107, '1500-01-01 12:00', '1500-01-01');
INSERT INTO types (id, clock) VALUES (104, '24:00');
INSERT INTO types (id, double) VALUES (105, 'NaN');
INSERT INTO types (id, price) VALUES (106, 'NaN');
